package relay

import (
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// A guest that never closes a stream that the host has ended must not hold the host's end of it.
func TestASilentOtherSideIsGivenUp(t *testing.T) {
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
			t.Fatalf("the end was not told: %v %v", header, err)
		}
		time.Sleep(linger - time.Second)
		select {
		case <-joined:
			t.Error("given up too early")
		default:
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		select {
		case <-joined:
		default:
			t.Error("the stream is still held")
			channel.Close()
		}
	})
}
