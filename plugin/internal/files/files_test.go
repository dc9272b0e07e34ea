package files

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestRead(t *testing.T) {
	folder := t.TempDir()
	path := func(name string, size int) string {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, make([]byte, size), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for path, problem := range map[string]string{
		path("empty", 0):                "",
		path("largest", 1<<20):          "",
		path("larger", 1<<20+1):         "is 1048577 bytes; expected at most 1 MiB",
		folder:                          "is not a regular file",
		filepath.Join(folder, "none"):   "cannot be read: no such file or directory",
		filepath.Join(folder, "a\x00b"): "cannot be read: invalid argument",
	} {
		_, err := Read(path, 1)
		if err == nil && problem != "" || err != nil && (problem == "" || !strings.HasPrefix(err.Error(), problem)) {
			t.Errorf("%q: %v, not %q", path, err, problem)
		}
	}
}
