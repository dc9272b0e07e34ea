package remote

import (
	"encoding/json"
	"errors"
	"fmt"

	"steersman.dev/plugin/internal/scoring"
)

const maxQuotedBytes = 200 // of a service's own words, in an error

// target is where the scores of an answer go.
type target struct {
	out     []int64
	order   []int  // for each score of the answer, its place in out; nil: the same
	version string // of the node set, once an answer was decoded
}

// answer is what the service says. A newer service may say more.
type answer struct {
	NodeSet once[string] `json:"nodeSet"`
	Scores  list         `json:"scores"`
	Neutral once[string] `json:"neutral"`
}

var errDuplicateField = errors.New("a field is there twice")

// once refuses a field that is there twice, of which encoding/json would take the last.
type once[T any] struct {
	value T
	there bool
}

// UnmarshalJSON decodes the value.
func (o *once[T]) UnmarshalJSON(content []byte) error {
	if o.there {
		return errDuplicateField
	}
	o.there = true
	return json.Unmarshal(content, &o.value)
}

// list is a list of scores, which encoding/json would decode slowly and with less said about what is wrong.
type list []int64

// UnmarshalJSON decodes a list of integers from 0 to 100. The content is valid JSON.
func (l *list) UnmarshalJSON(content []byte) error {
	switch {
	case *l != nil:
		return errDuplicateField
	case content[0] != '[':
		return fmt.Errorf("scores: %s is no list", quoted(content))
	}
	*l = make(list, 0, len(content)/3+1)
	for i := 1; i < len(content); {
		switch c := content[i]; c {
		case ' ', '\t', '\r', '\n', ',', ']':
			i++
		default:
			end := i
			value := int64(0)
			for ; end < len(content) && '0' <= content[end] && content[end] <= '9'; end++ {
				value = min(value*10+int64(content[end]-'0'), scoring.Best+1)
			}
			if end == i || !endsNumber(content[end:]) || value > scoring.Best {
				return fmt.Errorf("scores[%d]: %s is no whole number from 0 to %d", len(*l), element(content[i:]), scoring.Best)
			}
			*l = append(*l, value)
			i = end
		}
	}
	return nil
}

func endsNumber(rest []byte) bool {
	if len(rest) == 0 {
		return true
	}
	switch rest[0] {
	case ' ', '\t', '\r', '\n', ',', ']':
		return true
	}
	return false
}

// element returns the first element of the rest of a list, as far as it is worth showing.
func element(rest []byte) string {
	for i, c := range rest {
		if c == ',' || c == ']' {
			return quoted(rest[:i])
		}
	}
	return quoted(rest)
}

// decode writes the scores of an answer, or says what is wrong with it. version: of the node set that was asked about,
// nil: names were sent.
func (t *target) decode(content, version []byte) error {
	var decoded answer
	if err := json.Unmarshal(content, &decoded); err != nil {
		return fmt.Errorf("the answer is malformed: %s", quoted([]byte(err.Error())))
	}
	scores := decoded.Scores
	switch {
	case decoded.Neutral.value != "":
		return &Declined{knownReason(decoded.Neutral.value)}
	case len(scores) != len(t.out):
		return fmt.Errorf("the answer has %d scores for %d nodes", len(scores), len(t.out))
	case decoded.NodeSet.value == "":
		return errors.New("the answer names no version of the node set")
	}
	if version != nil {
		var asked string
		if err := json.Unmarshal(version, &asked); err != nil || asked != decoded.NodeSet.value {
			return fmt.Errorf("the answer is about other nodes: node set %s", quoted([]byte(decoded.NodeSet.value)))
		}
	}
	for i, score := range scores {
		if t.order == nil {
			t.out[i] = score
		} else {
			t.out[t.order[i]] = score
		}
	}
	t.version = decoded.NodeSet.value
	return nil
}

// knownReason returns a reason as one of those that a service has, so that they can be counted.
func knownReason(reason string) string {
	switch reason {
	case "shadow", "deadline", "overload", "stale", "policy", "unusual":
		return reason
	}
	return "other"
}

// errorMessage returns what a service says about a request that it refuses.
func errorMessage(content []byte) string {
	var problem struct {
		Error string `json:"error"`
	}
	if json.Unmarshal(content, &problem) == nil && problem.Error != "" {
		content = []byte(problem.Error)
	}
	return quoted(content)
}

// quoted returns the beginning of foreign text, quoted for a log.
func quoted(content []byte) string {
	if len(content) > maxQuotedBytes {
		return fmt.Sprintf("%q...", content[:maxQuotedBytes])
	}
	return fmt.Sprintf("%q", content)
}
