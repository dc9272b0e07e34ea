// Package files reads the files that a configuration names.
package files

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"
)

// Shown returns a path as one line.
func Shown(path string) string {
	if strings.IndexFunc(path, func(r rune) bool { return !strconv.IsPrint(r) }) >= 0 {
		return strconv.Quote(path)
	}
	return path
}

// Read returns the content of a regular file of at most so many MiB, also of one that grows meanwhile. The error says
// what is wrong, without the path.
func Read(path string, mebibytes int64) ([]byte, error) {
	content, err := read(path, mebibytes<<20)
	if cause := (*fs.PathError)(nil); errors.As(err, &cause) {
		return nil, fmt.Errorf("cannot be read: %w", cause.Err)
	}
	return content, err
}

func read(path string, most int64) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("is not a regular file")
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	size := info.Size()
	content, err := io.ReadAll(io.LimitReader(file, min(size, most)+1))
	if size = max(size, int64(len(content))); size > most {
		return nil, fmt.Errorf("is %d bytes; expected at most %d MiB", size, most>>20)
	}
	return content, err
}
