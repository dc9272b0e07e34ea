package core

// Policy is what a policy file says.
type Policy struct {
	Card           []byte // its model card in JSON; empty of a formula
	ObservesOthers bool   // the score of a node depends on the other nodes, too
}

// ReadPolicy reads the content of a policy file. The error is one line that names the file, the place, the field and
// what would be right.
func ReadPolicy(file string, content []byte) (*Policy, error) {
	instance, err := New()
	if err != nil {
		return nil, err
	}
	defer instance.Close()
	number, _, err := instance.call("policy_new", content, len(content), []byte(file), len(file))
	if err != nil {
		return nil, err
	}
	observes, _, err := instance.call("policy_observes", number)
	if err != nil {
		return nil, err
	}
	card, err := instance.card("policy_card", number)
	if err != nil {
		return nil, err
	}
	return &Policy{card, observes != 0}, nil
}

// card returns the text that a function writes of an object.
func (i *Instance) card(function string, number int64) ([]byte, error) {
	length, _, err := i.call(function, number, output(0), 0)
	if err != nil {
		return nil, err
	}
	_, card, err := i.call(function, number, output(length), int(length))
	if err != nil {
		return nil, err
	}
	return append([]byte(nil), card[:length]...), nil
}
