package native

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// retold is a policy file with another text in its card, which has the same length.
func retold(t *testing.T, content []byte, before, after string) []byte {
	t.Helper()
	length := int(binary.LittleEndian.Uint64(content))
	header := string(content[8 : 8+length])
	if !strings.Contains(header, before) {
		t.Fatalf("the header has no %q", before)
	}
	header = strings.Replace(header, before, after, 1)
	result := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	return append(append(result, header...), content[8+length:]...)
}

func TestWhatIsWrongWithAFileIsOneLine(t *testing.T) {
	linear, mlp := unpack(t, "linear.safetensors"), unpack(t, "mlp.safetensors")
	formula := []byte("# steersman formula 2\nno GPU:\na share of a GPU:\n1 fgd\none GPU:\nseveral GPUs:\n")
	mix := `,\"mix\":{\"version\":3`
	for _, each := range []struct {
		name    string
		file    string
		content []byte
		message string
	}{
		{"empty", "p", nil, "p, file, policy: is truncated or no safetensors file"},
		{"truncated", "p", mlp[:len(mlp)-1], "is truncated or no safetensors file"},
		{"schema", "p", retold(t, linear, `\"schema\":1`, `\"schema\":2`), "card, schema: is 2; this version of steersman reads 1"},
		{"field", "p", retold(t, linear, `\"schema\":1`, `\"schema\":1,\"more\":1`), "is not a model card: unknown field `more`"},
		{"view", "p", retold(t, linear, `\"view\":\"gpu\"`, `\"view\":\"cpu\"`), "card, view: is 'cpu'"},
		{"network", "p", retold(t, mlp, `\"network\":\"mlp\"`, `\"network\":\"mlq\"`), "card, network: is 'mlq'"},
		{"no mix", "p", retold(t, linear, mix, mix[:3]+`no`+mix[5:]), "is not a model card"},
		{"version", "p", retold(t, linear, mix, `,\"mix\":{\"version\":1`), "card, mix.version: is 1"},
		{"several lines", "p\n", nil, `p\n, file, policy`},
		{"a formula", "p.txt", formula, "p.txt, card, mix: is missing: the file has no workload profile; embed one: steersman fit policy"},
		{"a wrong formula", "p.txt", formula[3:], "p.txt, line 1: expected '# steersman formula 2'"},
	} {
		t.Run(each.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), each.file)
			if err := os.WriteFile(path, each.content, 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := readPolicy("", path)
			if err == nil || !strings.Contains(err.Error(), each.message) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%v says not %q", err, each.message)
			}
		})
	}
}

// file is a policy file of a card, without other fields than these, and of weights that are zeros.
func file(card string, tensors string, bytes int) []byte {
	card = `{"schema":1,"name":"p","view":"gpu","view_version":3,"objective":"o","algorithm":"a",` + card + "}"
	header := `{"__metadata__":{"steersman":` + strconv.Quote(card) + `}` + tensors + "}"
	result := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	return append(append(result, header...), make([]byte, bytes)...)
}

func TestPoliciesThatNeedMore(t *testing.T) {
	const weights, rules = 4 * 31 * 8, 4 * 8 * 8
	for _, each := range []struct {
		name    string
		content []byte
		message string
	}{
		{"no mix", file(`"network":"rule","members":["gpu-packing"]`, "", 0),
			"card, mix: is missing: the file has no workload profile; embed one: steersman fit policy"},
		{"portfolio", file(`"network":"portfolio","members":["a"]`, fmt.Sprintf(
			`,"weights":{"dtype":"F64","shape":[1,4,31],"data_offsets":[0,%d]},"rules":{"dtype":"F64","shape":[1,4,8],"data_offsets":[%d,%d]}`,
			weights, weights, weights+rules), weights+rules),
			`card, network: is "portfolio", of which one member must be chosen for a cluster: steersman fit policy`},
	} {
		path := filepath.Join(t.TempDir(), "p")
		if err := os.WriteFile(path, each.content, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := readPolicy("", path); err == nil || !strings.Contains(err.Error(), each.message) {
			t.Errorf("%s: %v", each.name, err)
		}
	}
}

func TestFilesThatCannotBeRead(t *testing.T) {
	folder := t.TempDir()
	large := filepath.Join(folder, "large.safetensors")
	if err := os.WriteFile(large, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(large, maxMebibytes<<20+1); err != nil {
		t.Fatal(err)
	}
	for path, message := range map[string]string{
		filepath.Join(folder, "none"): "none, file, policy: cannot be read: no such file or directory",
		folder:                        "is not a regular file",
		large:                         "large.safetensors, file, policy: is 67108865 bytes; expected at most 64 MiB",
	} {
		if _, err := readPolicy("", path); err == nil || !strings.Contains(err.Error(), message) {
			t.Errorf("%v says not %q", err, message)
		}
	}
}
