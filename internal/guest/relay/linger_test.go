package relay

import (
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// The host closes its end of a stream after linger even if the guest never closes the stream.
// Otherwise a hostile guest could exhaust the descriptors of the host.
func TestStreamToSilentGuestIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		user, plain := net.Pipe()
		channel, guest := net.Pipe()
		defer guest.Close()
		joined := make(chan struct{})
		go func() {
			join(plain, channel, linger)
			close(joined)
		}()
		user.Close()
		header := make([]byte, headerSize)
		if _, err := guest.Read(header); err != nil || header[0] != kindEnd {
			t.Fatalf("got %v, %v, want the end", header, err)
		}
		time.Sleep(linger - time.Second)
		select {
		case <-joined:
			t.Error("the stream was closed too early")
		default:
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		select {
		case <-joined:
		default:
			t.Error("the stream is still open")
			channel.Close()
		}
	})
}
