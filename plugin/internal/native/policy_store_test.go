package native

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// onReload keeps what a store said last.
type onReload struct {
	times  int
	loaded *LoadedPolicy
	err    error
}

func (o *onReload) hear(loaded *LoadedPolicy, err error) {
	o.times, o.loaded, o.err = o.times+1, loaded, err
}

// write puts a file there, later than the one before.
func write(t *testing.T, path string, content []byte, seconds int) {
	t.Helper()
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	then := time.Now().Add(time.Duration(seconds) * time.Second)
	if err := os.Chtimes(path, then, then); err != nil {
		t.Fatal(err)
	}
}

func TestAFileThatChangesIsReadAnewAndABadOneChangesNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "policy.safetensors")
	linear, mlp := unpack(t, "linear.safetensors"), unpack(t, "mlp.safetensors")
	older := []byte(strings.Replace(string(linear), `\"view_version\":3`, `\"view_version\":7`, 1))
	heard := &onReload{}
	store := NewPolicyStore("", path, heard.hear)
	for i, step := range []struct {
		name    string
		act     func()
		times   int
		number  int
		policy  string
		problem string
	}{
		{"there is none", func() {}, 1, 0, "", "cannot be read: no such file"},
		{"still none", func() {}, 1, 0, "", "cannot be read: no such file"},
		{"it comes", func() { write(t, path, linear, 1) }, 2, 1, "linear", ""},
		{"it stays", func() {}, 2, 1, "linear", ""},
		{"it is truncated", func() { write(t, path, mlp[:len(mlp)/2], 2) }, 3, 1, "linear", "is truncated"},
		{"it is of another version", func() { write(t, path, older, 3) }, 4, 1, "linear", "view_version"},
		{"it is replaced", func() { write(t, path, mlp, 4) }, 5, 2, "mlp", ""},
		{"it is empty", func() { write(t, path, nil, 5) }, 6, 2, "mlp", "is truncated"},
		{"it is gone", func() { _ = os.Remove(path) }, 7, 2, "mlp", "no such file"},
	} {
		step.act()
		store.Reload()
		loaded, number, name := store.LoadedPolicy(), 0, ""
		if loaded != nil {
			number, name = loaded.Number, loaded.Policy.Name
		}
		if heard.times != step.times || heard.loaded != loaded || number != step.number || name != step.policy {
			t.Errorf("%d, %s: told %d times, policy %d %q", i, step.name, heard.times, number, name)
		}
		if (heard.err == nil) != (step.problem == "") || heard.err != nil && !strings.Contains(heard.err.Error(), step.problem) {
			t.Errorf("%d, %s: %v, not %q", i, step.name, heard.err, step.problem)
		}
	}
}

func TestBuiltInPolicies(t *testing.T) {
	file := policyFile(t, "steersman-default")
	for _, each := range []struct{ name, path, policy, problem string }{
		{"best-fit", "", "best-fit", ""},
		{"fgd", file, "fgd", ""},
		{"", file, "steersman", ""},
		{"fgd", "", "", "needs a workload profile"},
		{"unknown", file, "", "unknown policy"},
	} {
		heard := &onReload{}
		NewPolicyStore(each.name, each.path, heard.hear).Reload()
		switch {
		case each.problem != "":
			if heard.err == nil || !strings.Contains(heard.err.Error(), each.problem) {
				t.Errorf("%q of %q: %v", each.name, each.path, heard.err)
			}
		case heard.err != nil || heard.loaded.Policy.Name != each.policy:
			t.Errorf("%q of %q: %v", each.name, each.path, heard.err)
		}
	}
}
