package policy

import (
	"encoding/binary"
	"errors"
	"math"
	"strings"
	"testing"
)

// FuzzParse holds the reader of policy files to errors of one line, whatever is in the file; and what it takes for a
// policy must give scores, or an error, and never panic.
func FuzzParse(f *testing.F) {
	ints := unpacked(f, vectorFolder+"/linear.safetensors.gz")
	header := 8 + int(binary.LittleEndian.Uint64(ints))
	for _, seed := range [][]byte{nil, ints[:8], ints[:header], ints[:len(ints)-1], []byte("\xff\xff\xff\xff\xff\xff\xff\xff{}")} {
		f.Add(seed)
	}
	for _, name := range []string{"linear", "cluster-linear"} {
		f.Add(unpacked(f, vectorFolder+"/"+name+".safetensors.gz"))
	}
	state, pod := busyCluster(3), &Pod{CPU: 1000, GPU: GPURequest{Count: 1, Milli: 500}}
	f.Fuzz(func(t *testing.T, content []byte) {
		policy, err := Parse("fuzzed", content)
		if err != nil {
			var wrong *FileError
			if !errors.As(err, &wrong) || strings.ContainsAny(err.Error(), "\n\r") {
				t.Errorf("%q", err)
			}
			return
		}
		out := make([]float64, len(state.Nodes))
		if err := policy.Scores(t.Context(), state, pod, all(state), out); err != nil {
			return
		}
		for _, score := range out {
			if math.IsNaN(score) || math.IsInf(score, 1) {
				t.Errorf("%v", out)
			}
		}
	})
}
