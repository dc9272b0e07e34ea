package policy

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

const maxBytes = 1 << 30 // of a policy file

// view is the features that a policy was trained on.
type view struct {
	version int
	node    int // features of a node
}

// views are those of steersman/features.py that clusters here show. All have the same features of pod and cluster.
var views = map[string]view{"cluster": {1, clusterNode}, "gpu": {2, nodeFeatures}}

// Load reads a policy file, which must have a mix baked in.
//
// The error is a FileError of one line if the file is no policy file, is truncated, of another version, or holds weights
// that are not finite numbers or absurd; or tensors that do not fit its card.
func Load(path string) (*Policy, error) {
	content, err := readFile(path)
	if err != nil {
		return nil, err
	}
	return Parse(path, content)
}

func readFile(path string) ([]byte, error) {
	found, err := os.Stat(path)
	if err == nil && !found.Mode().IsRegular() {
		return nil, &FileError{path, "file", "policy", "is no regular file"}
	}
	if err == nil && found.Size() > maxBytes {
		problem := fmt.Sprintf("is beyond %d GiB, so this is no policy", maxBytes>>30)
		return nil, &FileError{path, "file", "size", problem}
	}
	var content []byte
	if err == nil {
		content, err = os.ReadFile(path)
	}
	if err != nil {
		var cause *fs.PathError
		if errors.As(err, &cause) {
			err = cause.Err
		}
		return nil, &FileError{path, "file", "policy", "cannot be read: " + err.Error()}
	}
	return content, nil
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
	if err := all.checkFinite(); err != nil {
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
