package core

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
)

// vectorFolder holds what the Python side plays, see tests/contract/run.py.
const vectorFolder = "../../../tests/contract/data/"

func unpacked(t testing.TB, name string) []byte {
	t.Helper()
	packed, err := os.ReadFile(vectorFolder + name + ".gz")
	if err != nil {
		t.Fatal(err)
	}
	reader, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	content, err := io.ReadAll(reader)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

func newInstance(t testing.TB) *Instance {
	t.Helper()
	instance, err := New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(instance.Close)
	return instance
}

// ask calls a function that must not fail.
func ask(t testing.TB, instance *Instance, name string, arguments ...any) (int64, []byte) {
	t.Helper()
	answer, written, err := instance.call(name, arguments...)
	if err != nil {
		t.Fatal(err)
	}
	return answer, written
}

// TestTheSameRunAsInPython plays a run that the native core and another WebAssembly play to the same bits.
func TestTheSameRunAsInPython(t *testing.T) {
	content, err := os.ReadFile(vectorFolder + "run.json")
	if err != nil {
		t.Fatal(err)
	}
	var wanted struct {
		Events int    `json:"events"`
		Digest string `json:"sha256"`
	}
	if err := json.Unmarshal(content, &wanted); err != nil {
		t.Fatal(err)
	}
	instance, description := newInstance(t), unpacked(t, "run.description")
	run, _ := ask(t, instance, "engine_new", description, len(description))
	if stop, _ := ask(t, instance, "engine_advance", run, 1<<31); stop != 0 {
		t.Fatalf("the run stops with %d", stop)
	}
	const numbers = 10
	events, _ := ask(t, instance, "engine_events", run, 0, output(0), output(0), output(0), 0)
	count := int(events)
	_, written := ask(t, instance, "engine_events", run, 0,
		output(8*count), output(8*numbers*count), output(8*numbers*count), count)
	digest := sha256.Sum256(written)
	if count != wanted.Events || hex.EncodeToString(digest[:]) != wanted.Digest {
		t.Errorf("%d events of %x; want %+v", count, digest, wanted)
	}
}

func TestErrorsOfTheCoreAreTexts(t *testing.T) {
	instance := newInstance(t)
	for _, each := range []struct {
		name      string
		arguments []any
		text      string
	}{
		{"decider_new", []any{[]byte{}, 0}, "not a safetensors file, or a part of one"},
		{"decider_new", []any{make([]byte, 1<<22), 1 << 22}, "not a safetensors file, or a part of one"},
		{"decider_devices", []any{int64(-1), int64(0), int64(0)}, "there is no object -1"},
		{"decider_new", []any{make([]byte, 1<<30+1), 1<<30 + 1}, "the core has no more memory"},
	} {
		_, _, err := instance.call(each.name, each.arguments...)
		if err == nil || !strings.Contains(err.Error(), each.text) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, not %q", each.name, err, each.text)
		}
	}
	if instance.IsLost() {
		t.Error("an error stops the core")
	}
}

func TestACoreThatStoppedIsLostAndAnotherOneIsNot(t *testing.T) {
	instance := newInstance(t)
	_, err := instance.ask("allocate", 900<<20)
	for calls := 0; err == nil && calls < 1000; calls++ { // each takes room for a million episodes
		_, _, err = instance.call("batch_new", 1<<20)
	}
	if !errors.Is(err, errFull) || !instance.IsLost() {
		t.Fatalf("%v", err)
	}
	for range 2 {
		if _, _, err := instance.call("forget", int64(1)); !errors.Is(err, ErrLost) {
			t.Errorf("%v", err)
		}
	}
	if answer, _ := ask(t, newInstance(t), "forget", int64(1)); answer != 0 {
		t.Errorf("%d", answer)
	}
}

func TestDescriptionsAreSafetensorsFiles(t *testing.T) {
	var described Description
	described.Int64s("a", []int64{-1, 1 << 40}, 2, 1)
	described.Bools("b", []bool{true, false}, 2)
	described.Int32s("c", nil, 0, 3)
	described.Float64s("d", []float64{0.5})
	described.Bytes("e", []byte("text"))
	content := described.Encode()
	length := int(content[0]) + int(content[1])<<8
	var header map[string]struct {
		Kind    string `json:"dtype"`
		Shape   []int  `json:"shape"`
		Offsets [2]int `json:"data_offsets"`
	}
	if err := json.Unmarshal(content[8:8+length], &header); err != nil {
		t.Fatal(err)
	}
	data := content[8+length:]
	for name, want := range map[string]string{
		"a": "I64 [2 1] ffffffffffffffff0000000000010000", "b": "BOOL [2] 0100", "c": "I32 [0 3] ", "d": "F64 [] 000000000000e03f",
		"e": "U8 [4] 74657874",
	} {
		each := header[name]
		shape, _ := json.Marshal(each.Shape)
		got := each.Kind + " " + strings.ReplaceAll(string(shape), ",", " ") + " " + hex.EncodeToString(data[each.Offsets[0]:each.Offsets[1]])
		if got != want {
			t.Errorf("%s: %s, not %s", name, got, want)
		}
	}
}

// FuzzReadPolicy holds the reader of policy files to errors of one line, whatever is in the file.
func FuzzReadPolicy(f *testing.F) {
	for _, name := range []string{"linear", "cluster-linear"} {
		content := unpacked(f, name+".safetensors")
		f.Add(content)
		f.Add(content[:len(content)/2])
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		for _, file := range []string{"fuzzed", "fuzzed.txt"} {
			policy, err := ReadPolicy(file, content)
			if err != nil && (strings.ContainsAny(err.Error(), "\n\r") || !strings.HasPrefix(err.Error(), file)) {
				t.Errorf("%q", err)
			}
			if err == nil && file == "fuzzed" && !json.Valid(policy.Card) {
				t.Errorf("the card %q is not JSON", policy.Card)
			}
		}
	})
}
