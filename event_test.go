package crannog

import "testing"

// What the interpreter sends is written by the code that it runs.
func FuzzReadEvent(f *testing.F) {
	for _, line := range []string{
		`{"type":"stdout","text":"hi\n","timestamp":"x"}`, `{"type":"result","text":"2","json":{"a":[1]},"is_main_result":true}`,
		`{"type":"error","name":"E","value":"v","traceback":"t"}`, `{"type":1}`, `null`, `[]`, `{"text":{"deep":1}}`, "{", "\x00",
	} {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line string) {
		event, err := readEvent([]byte(line))
		if err != nil && (event.Type != "" || event.Result != nil) {
			t.Fatalf("an error with an event: %+v %v", event, err)
		}
	})
}
