package policy

import (
	"fmt"
	"strconv"
	"strings"
)

// FileError says in one line what is wrong with a policy file, and what would be right.
type FileError struct {
	File    string // the file that was read
	Where   string // "file", "metadata", "card" or "tensor"
	Field   string // of the card, or the name of the tensor
	Problem string // what is wrong, and what would be right
}

func (e *FileError) Error() string {
	return fmt.Sprintf("%s, %s, %s: %s", oneLine(e.File), e.Where, oneLine(e.Field), e.Problem)
}

// oneLine is the text, quoted if it would not print as a part of one line.
func oneLine(text string) string {
	if strings.IndexFunc(text, func(r rune) bool { return !strconv.IsPrint(r) }) < 0 {
		return text
	}
	return strconv.Quote(text)
}
