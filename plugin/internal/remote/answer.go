package remote

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"sigs.k8s.io/json"

	"steersman.dev/plugin/internal/scoring"
)

const maxQuotedBytes = 200 // of a service's own words, in an error

// answer is what the service says about scores or limits. A newer service may say more.
type answer struct {
	NodeSet string    `json:"nodeSet"`
	Neutral string    `json:"neutral"`
	Scores  scoreList `json:"scores"`
	Kept    []byte    `json:"kept"` // a mask of the nodes that keep the limit; nil: it restricts nothing
	Outcome string    `json:"outcome"`
	Ignored []string  `json:"ignored"`
}

// scoreList is a list of scores, which encoding/json would decode slowly and with less said about what is wrong.
type scoreList []int64

// UnmarshalJSON decodes a list of integers from 0 to 100. The content is valid JSON.
func (l *scoreList) UnmarshalJSON(content []byte) error {
	if content[0] != '[' {
		return fmt.Errorf("scores: %s is no list", quoted(content))
	}
	*l = make(scoreList, 0, len(content)/3+1)
	content = bytes.TrimSpace(content[1 : len(content)-1])
	for len(content) > 0 {
		var element []byte
		element, content, _ = bytes.Cut(content, []byte{','})
		element = bytes.TrimSpace(element)
		score, err := strconv.ParseUint(string(element), 10, 64)
		if err != nil || score > scoring.Best {
			return fmt.Errorf("scores[%d]: %s is not a whole number from 0 to %d", len(*l), quoted(element), scoring.Best)
		}
		*l = append(*l, int64(score))
	}
	return nil
}

// decode returns an answer, or what is wrong with it. version: of the node set that was asked about, "": names were
// sent.
func decode(content []byte, version string) (*answer, error) {
	decoded := &answer{}
	problems, err := json.UnmarshalStrict(content, decoded, json.DisallowDuplicateFields)
	if err = cmp.Or(err, errors.Join(problems...)); err != nil {
		return nil, fmt.Errorf("the answer is malformed: %s", quoted([]byte(err.Error())))
	}
	switch {
	case decoded.Neutral != "":
		return nil, declined(decoded.Neutral)
	case decoded.NodeSet == "":
		return nil, errors.New("the answer names no version of the node set")
	case version != "" && version != decoded.NodeSet:
		return nil, fmt.Errorf("the answer is about other nodes: node set %s", quoted([]byte(decoded.NodeSet)))
	}
	return decoded, nil
}

// declined is the error of an answer without scores, by the reason that the service gives (live/service/admission.py).
func declined(reason string) error {
	reason = oneOf(reason, "shadow", "deadline", "overload", "stale", "policy", "unusual")
	err := fmt.Errorf("the service answers with neutral scores: %s", reason)
	return &scoring.Error{Err: err, Reason: "declined", Harmless: reason != "deadline" && reason != "overload"}
}

// oneOf returns a text as one of those that a service has, so that they can be counted.
func oneOf(text string, all ...string) string {
	if slices.Contains(all, text) {
		return text
	}
	return "other"
}

// errorMessage returns what a service says about a request that it refuses.
func errorMessage(content []byte) string {
	var problem struct {
		Error string `json:"error"`
	}
	if json.UnmarshalCaseSensitivePreserveInts(content, &problem) == nil && problem.Error != "" {
		content = []byte(problem.Error)
	}
	return quoted(content)
}

func quoted(content []byte) string {
	if len(content) > maxQuotedBytes {
		return fmt.Sprintf("%q...", content[:maxQuotedBytes])
	}
	return fmt.Sprintf("%q", content)
}
