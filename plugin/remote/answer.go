package remote

import (
	"encoding/json"
	"errors"
	"fmt"

	"steersman.dev/plugin/scoring"
)

const saidBytes = 200 // of a service's own words, in an error

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

var errTwice = errors.New("a field is there twice")

// once refuses a field that is there twice, of which encoding/json would take the last.
type once[T any] struct {
	value T
	there bool
}

// UnmarshalJSON decodes the value.
func (o *once[T]) UnmarshalJSON(content []byte) error {
	if o.there {
		return errTwice
	}
	o.there = true
	return json.Unmarshal(content, &o.value)
}

// list is a list of scores, which encoding/json would decode slowly and with less said about what is wrong.
type list []int64

// UnmarshalJSON decodes a list of whole numbers from 0 to 100. The content is valid JSON.
func (l *list) UnmarshalJSON(content []byte) error {
	switch {
	case *l != nil:
		return errTwice
	case content[0] != '[':
		return fmt.Errorf("scores: %s is no list", short(content))
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

// element is the first element of the rest of a list, as far as it is worth showing.
func element(rest []byte) string {
	for i, c := range rest {
		if c == ',' || c == ']' {
			return short(rest[:i])
		}
	}
	return short(rest)
}

// decode writes the scores of an answer, or says what is wrong with it. version: of the node set that was asked about,
// nil: names were sent.
func (t *target) decode(content, version []byte) error {
	var said answer
	if err := json.Unmarshal(content, &said); err != nil {
		return fmt.Errorf("the answer is malformed: %s", short([]byte(err.Error())))
	}
	scores := said.Scores
	switch {
	case said.Neutral.value != "":
		return &Declined{known(said.Neutral.value)}
	case len(scores) != len(t.out):
		return fmt.Errorf("the answer has %d scores for %d nodes", len(scores), len(t.out))
	case said.NodeSet.value == "":
		return errors.New("the answer names no version of the node set")
	}
	if version != nil {
		var asked string
		if err := json.Unmarshal(version, &asked); err != nil || asked != said.NodeSet.value {
			return fmt.Errorf("the answer is about other nodes: node set %s", short([]byte(said.NodeSet.value)))
		}
	}
	for i, score := range scores {
		if t.order == nil {
			t.out[i] = score
		} else {
			t.out[t.order[i]] = score
		}
	}
	t.version = said.NodeSet.value
	return nil
}

// known is a reason as one of those that a service has, so that they can be counted.
func known(reason string) string {
	switch reason {
	case "shadow", "canary", "deadline", "overload", "stale", "policy":
		return reason
	}
	return "other"
}

// complaint is what a service says about a request that it refuses.
func complaint(content []byte) string {
	var problem struct {
		Error string `json:"error"`
	}
	if json.Unmarshal(content, &problem) == nil && problem.Error != "" {
		content = []byte(problem.Error)
	}
	return short(content)
}

// short is the beginning of somebody else's words, quoted so that they can go to a log.
func short(content []byte) string {
	if len(content) > saidBytes {
		return fmt.Sprintf("%q...", content[:saidBytes])
	}
	return fmt.Sprintf("%q", content)
}
