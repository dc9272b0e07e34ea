package policy

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

const maxBytes = 64 << 20 // of a policy file; src/steersman/policies/policy_file.py has the same

// view is the features that a policy was trained on.
type view struct {
	version int
	node    int // features of a node
}

// views are those of steersman/features.py that clusters here show. All have the same features of pod and cluster.
var views = map[string]view{"cluster": {1, clusterNode}, "gpu": {2, nodeFeatures}}

// Load reads a policy file, which must have a mix baked in.
//
// The error is a FileError of one line if the file is no policy file, is larger than maxBytes, truncated, of another
// version, or holds weights that are whole numbers, not finite numbers or absurd; or tensors that do not fit its card.
func Load(path string) (*Policy, error) {
	content, err := readFile(path)
	if err != nil {
		return nil, err
	}
	return Parse(path, content)
}

// readFile reads at most maxBytes, also of a file that grows meanwhile.
func readFile(path string) ([]byte, error) {
	found, err := os.Stat(path)
	if err == nil && !found.Mode().IsRegular() {
		return nil, &FileError{path, "file", "policy", "is no regular file"}
	}
	if err == nil && found.Size() > maxBytes {
		return nil, tooLarge(path, found.Size())
	}
	var content []byte
	if err == nil {
		content, err = readMost(path, maxBytes+1)
	}
	if err != nil {
		var cause *fs.PathError
		if errors.As(err, &cause) {
			err = cause.Err
		}
		return nil, &FileError{path, "file", "policy", "cannot be read: " + err.Error()}
	}
	if len(content) > maxBytes {
		return nil, tooLarge(path, int64(len(content)))
	}
	return content, nil
}

func tooLarge(path string, size int64) error {
	problem := fmt.Sprintf("is %d bytes; a policy has %d MiB at most", size, maxBytes>>20)
	return &FileError{path, "file", "size", problem}
}

// readMost reads a file up to so many bytes.
func readMost(path string, most int64) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	return io.ReadAll(io.LimitReader(file, most))
}

// Parse is Load for a file whose content is there; errors name the file as given.
func Parse(file string, content []byte) (*Policy, error) {
	found, metadata, err := parseTensors(content)
	if err != nil {
		problem := fmt.Sprintf("is truncated or no safetensors file (%v)", err)
		return nil, &FileError{file, "file", "policy", problem}
	}
	card, err := parseCard(file, metadata)
	if err != nil {
		return nil, err
	}
	all := &tensors{file, found, map[string]bool{}}
	if err := all.checkNumbers(); err != nil {
		return nil, err
	}
	if card.Mix == nil {
		return nil, &FileError{file, "card", "mix", "is missing; bake one in: " + prepareCommand}
	}
	policy, err := open(all, card)
	if err != nil {
		return nil, err
	}
	policy.card = card
	return policy, nil
}

// open reads the mix of a file, and its weights.
func open(all *tensors, card *Card) (*Policy, error) {
	reader := &bakedReader{tensors: all}
	mix, err := readMix(reader, card.Mix)
	if err != nil {
		return nil, err
	}
	var seen *outlook
	if card.View == "gpu" {
		if seen, err = readOutlook(reader, mix); err != nil {
			return nil, err
		}
	}
	create, pointwise, err := readNetwork(all, card, mix, seen)
	if err != nil {
		return nil, err
	}
	if err := all.checkAllRead(true, "is not one of this network's"); err != nil {
		return nil, err
	}
	if err := all.checkAllRead(false, fmt.Sprintf("is not one that the view %q sees", card.View)); err != nil {
		return nil, err
	}
	return newPolicy(card.Name, mix, Traits{Pointwise: pointwise}, create), nil
}
