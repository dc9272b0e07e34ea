package policy

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"maps"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"steersman.dev/plugin/internal/safetensors"
)

const metadataKey = "__metadata__" // of the header

// tensorEntry is what the header says of a tensor.
type tensorEntry struct {
	Kind    string `json:"dtype"`
	Shape   []int  `json:"shape"`
	Offsets []int  `json:"data_offsets"`
}

// contents is a policy file taken apart: what a test spoils.
type contents struct {
	card    map[string]any
	tensors map[string]safetensors.Tensor
}

func takenApart(t testing.TB, name string) *contents {
	t.Helper()
	tensors, metadata, err := safetensors.Parse(unpacked(t, filepath.Join(vectorFolder, name+".safetensors.gz")))
	if err != nil {
		t.Fatal(err)
	}
	ints := &contents{map[string]any{}, tensors}
	if err := json.Unmarshal([]byte(metadata[cardKey]), &ints.card); err != nil {
		t.Fatal(err)
	}
	return ints
}

// file puts the contents together again.
func (c *contents) file(t testing.TB) []byte {
	t.Helper()
	card, err := json.Marshal(c.card)
	if err != nil {
		t.Fatal(err)
	}
	return assembled(t, map[string]string{cardKey: string(card)}, c.tensors)
}

func assembled(t testing.TB, metadata map[string]string, all map[string]safetensors.Tensor) []byte {
	t.Helper()
	given, err := json.Marshal(metadata)
	if err != nil {
		t.Fatal(err)
	}
	header, data := layout(t, all)
	return joined(`{"`+metadataKey+`":`+string(given)+header, data)
}

// layout is what a header says of tensors, after its metadata; and their data.
func layout(t testing.TB, all map[string]safetensors.Tensor) (string, []byte) {
	t.Helper()
	text, data := "", []byte{}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		each := all[name]
		said, err := json.Marshal(tensorEntry{each.Kind, each.Shape, []int{len(data), len(data) + len(each.Data)}})
		if err != nil {
			t.Fatal(err)
		}
		text, data = text+`,"`+name+`":`+string(said), append(data, each.Data...)
	}
	return text + "}", data
}

// joined is a file of a header and data.
func joined(header string, data []byte) []byte {
	return append(append(binary.LittleEndian.AppendUint64(nil, uint64(len(header))), header...), data...)
}

// put writes a number over the first one of a tensor, which it copies before.
func (c *contents) put(name string, bits uint64) {
	each := c.tensors[name]
	each.Data = append([]byte{}, each.Data...)
	if strings.HasSuffix(each.Kind, "64") {
		binary.LittleEndian.PutUint64(each.Data, bits)
	} else {
		each.Data[0] = byte(bits)
	}
	c.tensors[name] = each
}

// zeros puts a tensor of zeros in.
func (c *contents) zeros(name, kind string, shape ...int) {
	bits, _ := strconv.Atoi(strings.TrimLeft(kind, "FIU"))
	bytes := bits / 8
	for _, length := range shape {
		bytes *= length
	}
	c.tensors[name] = safetensors.Tensor{Kind: kind, Shape: shape, Data: make([]byte, bytes)}
}

func (c *contents) profile() map[string]any { return c.card["mix"].(map[string]any) }

func TestWhatIsWrongWithAFileIsOneLine(t *testing.T) {
	infinite := math.Float64bits(math.Inf(1))
	for _, each := range []struct {
		name, file string
		spoil      func(*contents)
		message    string
	}{
		{"schema", "linear", func(c *contents) { c.card["schema"] = 2 }, "card, schema: is not 1"},
		{"no schema", "linear", func(c *contents) { delete(c.card, "schema") }, "card, schema: is not 1"},
		{"field", "linear", func(c *contents) { c.card["more"] = 1 }, `is not a model card: json: unknown field "more"`},
		{"type", "linear", func(c *contents) { c.card["hidden"] = "no" }, "is not a model card"},
		{"required", "linear", func(c *contents) { delete(c.card, "view") }, "is not a model card: it has no view"},
		{"view", "linear", func(c *contents) { c.card["view"] = "telemetry" }, `is "telemetry"; expected cluster or gpu`},
		{"version", "linear", func(c *contents) { c.card["view_version"] = 9 }, "is 9, but here the features"},
		{"portfolio", "linear", func(c *contents) { c.card["network"] = "portfolio" },
			"of which one member must be chosen for a cluster: steersman fit policy"},
		{"compared on", "linear", func(c *contents) { c.card["compared_on"] = map[string]any{"more": 1} },
			`is not a model card: json: unknown field "more"`},
		{"network", "linear", func(c *contents) { c.card["network"] = "gnn" }, `is "gnn"; expected linear, mlp or deepsets`},
		{"norm", "linear", func(c *contents) { c.card["normalisation"] = "x" }, "expected none, layer or batch"},
		{"own norm", "mlp", func(c *contents) { c.card["normalisation"] = "layer" }, "without features of the cluster has none"},
		{"hidden", "mlp", func(c *contents) { c.card["hidden"] = []int{} }, `the network "mlp" has one layer or more`},
		{"width", "mlp", func(c *contents) { c.card["hidden"] = []int{0} }, `the network "mlp" has one layer or more`},
		{"other width", "mlp", func(c *contents) { c.card["hidden"] = []int{17} }, "layers.0.weight: is F64 of shape [16 42]; expected real numbers of shape [17 42]"},
		{"no mix", "linear", func(c *contents) { delete(c.card, "mix") }, "embed one: steersman fit policy"},
		{"mix version", "linear", func(c *contents) { c.profile()["version"] = 1 }, "mix.version: is 1"},
		{"fewer pods", "linear", func(c *contents) { c.profile()["typical_pods"] = 3 }, "mix.accepts: is U8 of shape"},
		{"negative pods", "linear", func(c *contents) { c.profile()["typical_pods"] = -1 }, "mix.typical_pods: is -1; expected 0 or more"},
		{"no tensor", "linear", func(c *contents) { delete(c.tensors, "mix.cpu") }, "mix.cpu: is missing; prepare the policy again"},
		{"no weights", "linear", func(c *contents) { delete(c.tensors, "weights") }, "weights: is missing; expected [4 31]"},
		{"more", "linear", func(c *contents) { c.zeros("more", "F32", 3) }, "more: is not one of this network's"},
		{"more baked", "linear", func(c *contents) { c.zeros("mix.more", "F32", 3) }, `mix.more: is not one that the view "gpu" sees`},
		{"an outlook", "cluster-mlp", func(c *contents) { c.zeros("outlook.planned", "F32", 3) }, `is not one that the view "cluster" sees`},
		{"shape", "linear", func(c *contents) { c.zeros("weights", "F64", 4, 3) }, "weights: is F64 of shape [4 3]; expected real numbers of shape [4 31]"},
		{"whole weights", "linear", func(c *contents) { c.zeros("weights", "I8", 4, 31) }, "tensor, weights: is I8; expected F32 or F64 for weights"},
		{"whole weights of a layer", "mlp", func(c *contents) { c.zeros("layers.0.weight", "U8", 16, 42) },
			"tensor, layers.0.weight: is U8; expected F32 or F64 for weights"},
		{"NaN", "linear", func(c *contents) { c.put("weights", math.Float64bits(math.NaN())) }, "weights: holds a weight that is not a finite number"},
		{"baked infinite", "linear", func(c *contents) { c.put("mix.share", infinite) }, "mix.share: holds a weight that is not a finite"},
		{"absurd", "linear", func(c *contents) { c.put("weights", math.Float64bits(2e12)) }, "weights: holds a weight beyond 1e+12"},
		{"whole for real", "linear", func(c *contents) { c.zeros("mix.share", "I64", 1) }, "real numbers of shape"},
		{"value", "linear", func(c *contents) { c.put("mix.value", 99) }, "mix.value: has a value outside 0 to"},
		{"negative", "linear", func(c *contents) { c.put("mix.cpu", 1<<63) }, "mix.cpu: has a value outside 0 to"},
		{"order", "linear", func(c *contents) { c.put("mix.milli", 1000) }, "mix.milli: is not in increasing order"},
		{"outlook shape", "linear", func(c *contents) { c.zeros("outlook.planned", "F32", 3) }, "outlook.planned: is F32 of shape [3]"},
		{"sequence", "linear", func(c *contents) { c.put("outlook.sequences", 1000) }, "outlook.sequences: has a value outside"},
		{"endless", "linear", func(c *contents) { c.zeros("outlook.sequences", "I64", 6, 2000) }, "of more than 1024 pods"},
		{"head", "cluster-linear", func(c *contents) { delete(c.tensors, "head.bias") }, "head.bias: is missing; expected [4]"},
		{"norm shape", "cluster-mlp", func(c *contents) { delete(c.tensors, "layers.1.norm.bias") }, "layers.1.norm.bias: is missing"},
		{"rho", "gpu-deepsets", func(c *contents) { c.zeros("rho.0.weight", "F32", 6, 6) }, "rho.0.weight: is F32 of shape [6 6]; expected real numbers of shape [6 12]"},
	} {
		t.Run(each.name, func(t *testing.T) {
			spoilt := takenApart(t, each.file)
			each.spoil(spoilt)
			refused(t, spoilt.file(t), each.message)
		})
	}
}

func refused(t *testing.T, content []byte, message string) {
	t.Helper()
	_, err := Parse("bad.safetensors", content)
	var wrong *FileError
	if !errors.As(err, &wrong) {
		t.Fatalf("%v is no FileError", err)
	}
	text := err.Error()
	if !strings.Contains(text, message) || !strings.HasPrefix(text, "bad.safetensors, ") || strings.Contains(text, "\n") {
		t.Errorf("%q says not %q", text, message)
	}
}

func TestWhatIsNoSafetensorsFileIsOneLine(t *testing.T) {
	ints := unpacked(t, filepath.Join(vectorFolder, "linear.safetensors.gz"))
	header := func(text string, data ...byte) []byte { return joined(text, data) }
	for _, each := range []struct {
		content []byte
		message string
	}{
		{nil, "ends within the length of its header"},
		{ints[:7], "ends within the length of its header"},
		{ints[:100], "header would be longer than the file"},
		{ints[:len(ints)-1], "is truncated or no safetensors file"},
		{append(append([]byte{}, ints...), 0), "goes on after its last tensor"},
		{binary.LittleEndian.AppendUint64(nil, 1<<63), "header would be longer"},
		{header(`[1]`), "header is no JSON object"},
		{header(`null`), "header is no JSON object"},
		{header(`{"__metadata__":{"a":1}}`), "metadata are no texts"},
		{header(`{"a":7}`), "entry of a is none of a tensor"},
		{header(`{"a\nb":7}`), `entry of "a\nb" is none of a tensor`},
		{header(`{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4,8]}}`, 0, 0, 0, 0), "none of a tensor"},
		{header(`{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}}`, 0, 0, 0, 0), "other bytes than its shape [2]"},
		{header(`{"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,0]}}`), "other bytes than its shape [-1]"},
		{header(`{"a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0]}}`), "other bytes"},
		{header(`{"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}`, make([]byte, 8)...), "not where the one before"},
		{header(`{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,8]}}`, 0, 0, 0, 0), "beyond the end"},
		{header(`{"a":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]}}`, 0, 0, 0, 0), `is of type "BF16"`},
		{assembled(t, map[string]string{}, nil), "is missing: expected the model card of a policy file of steersman"},
		{assembled(t, map[string]string{cardKey: "no"}, nil), "is not a model card"},
	} {
		refused(t, each.content, each.message)
	}
}

func TestLoadSaysWhatItCannotRead(t *testing.T) {
	folder := t.TempDir()
	large := filepath.Join(folder, "large.safetensors")
	file, err := os.Create(large)
	if err == nil {
		err = errors.Join(file.Truncate(maxMebibytes<<20+1), file.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	for path, message := range map[string]string{
		filepath.Join(folder, "none"): "none, file, policy: cannot be read: no such file or directory",
		folder:                        "is not a regular file",
		large:                         "large.safetensors, file, policy: is 67108865 bytes; expected at most 64 MiB",
	} {
		if _, err := Load(path); err == nil || !strings.Contains(err.Error(), message) {
			t.Errorf("%v says not %q", err, message)
		}
	}
}

// TestNothingIsAllocatedForWhatIsRefused reads files whose weights would be eight times as large once expanded.
func TestNothingIsAllocatedForWhatIsRefused(t *testing.T) {
	spoilt := takenApart(t, "linear")
	spoilt.zeros("weights", "I8", 1<<24)
	content := spoilt.file(t)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := Parse("bad.safetensors", content)
	runtime.ReadMemStats(&after)
	if err == nil {
		t.Fatal("whole numbers are taken for weights")
	}
	if allocated := after.TotalAlloc - before.TotalAlloc; allocated > 1<<20 {
		t.Errorf("%d bytes are allocated for a file of %d", allocated, len(content))
	}
}

func TestLoadReadsWhatParseDoes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "p.safetensors")
	if err := os.WriteFile(path, takenApart(t, "steersman-default").file(t), 0o600); err != nil {
		t.Fatal(err)
	}
	result, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	if result.Name != "steersman" || result.Card.Algorithm != "evolution" || result.Card.Profile.TypicalPods == 0 {
		t.Errorf("%s with the card %+v", result.Name, result.Card)
	}
}

// tiny is a policy of the view gpu with a profile of two kinds of pods: small enough to be changed at random.
func tiny() *contents {
	const text = `{"schema":1,"name":"tiny","view":"gpu","view_version":3,"network":"linear","objective":"o","algorithm":"a",
		"mix":{"version":3,"workload":"w","typical_pods":2,"models":["A100"]}}`
	result := &contents{map[string]any{}, map[string]safetensors.Tensor{}}
	if err := json.Unmarshal([]byte(text), &result.card); err != nil {
		panic(err)
	}
	result.zeros("weights", "F32", kinds, nodeFeatures)
	result.zeros("mix.cpu", "I16", 2)
	result.tensors["mix.milli"] = safetensors.Tensor{Kind: "I16", Shape: []int{2}, Data: []byte{100, 0, 250, 0}}
	result.tensors["mix.accepts"] = safetensors.Tensor{Kind: "U8", Shape: []int{2, 2}, Data: []byte{1, 1, 1, 0}}
	result.tensors["mix.gpu_count"] = safetensors.Tensor{Kind: "U8", Shape: []int{2}, Data: []byte{1, 2}}
	result.tensors["mix.value"] = safetensors.Tensor{Kind: "U8", Shape: []int{2}, Data: []byte{0, 1}}
	result.zeros("mix.share", "F32", 2)
	result.zeros("outlook.planned", "F32", amounts)
	result.tensors["outlook.sequences"] = safetensors.Tensor{Kind: "U8", Shape: []int{sequences, 2}, Data: []byte{0, 1, 1, 0, 0, 0, 1, 1, 0, 1, 1, 0}}
	result.zeros("outlook.ratios", "F32", 2)
	result.tensors["outlook.smallest"] = safetensors.Tensor{Kind: "U8", Shape: []int{1}, Data: []byte{100}}
	return result
}

// FuzzLoad reads whatever comes as a card, a header and data, and asks what it takes for a policy about a cluster.
func FuzzLoad(f *testing.F) {
	linear, mlp := tiny(), tiny()
	mlp.card["network"], mlp.card["hidden"] = "mlp", []int{2}
	mlp.zeros("layers.0.weight", "F32", 2, nodeFeatures+podFeatures)
	mlp.zeros("layers.0.bias", "F32", 2)
	mlp.zeros("head.weight", "F32", 1, 2)
	mlp.zeros("head.bias", "F32", 1)
	for _, each := range []*contents{linear, mlp, takenApart(f, "cluster-linear"), takenApart(f, "cluster-deepsets")} {
		if _, err := Parse("seed", each.file(f)); err != nil {
			f.Fatal(err)
		}
		card, err := json.Marshal(each.card)
		if err != nil {
			f.Fatal(err)
		}
		header, data := layout(f, each.tensors)
		f.Add(string(card), header, data)
	}
	state := busyCluster(4)
	state.Peers = map[int]int{1: 2}
	state.Nodes[0].GPU.Model, state.Nodes[1].GPU.Free = "A100", nil
	pods := []*Pod{
		{CPU: 100, Memory: 1 << 20},
		{GPU: GPURequest{Count: 1, Milli: 100}},
		{GPU: GPURequest{Count: 1, Milli: Whole}},
		{GPU: GPURequest{Count: 2, Milli: 250}},
	}
	f.Fuzz(func(t *testing.T, card, header string, data []byte) {
		quoted, err := json.Marshal(map[string]string{cardKey: card})
		if err != nil {
			t.Fatal(err)
		}
		policy, err := Parse("f", joined(`{"`+metadataKey+`":`+string(quoted)+header, data))
		if err != nil {
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("%q is more than a line", err)
			}
			return
		}
		out := make([]float64, len(state.Nodes))
		for _, pod := range pods {
			if err := policy.Scores(t.Context(), state, pod, []int{0, 1, 2, 3}, out); err != nil {
				continue
			}
			for n, score := range out {
				if math.IsNaN(score) || math.IsInf(score, 1) {
					t.Errorf("node %d scores %v", n, score)
				}
			}
			if best := bestOf(out); best >= 0 {
				if _, err := policy.Devices(&state.Nodes[best], pod); err != nil {
					t.Error(err)
				}
			}
		}
	})
}
