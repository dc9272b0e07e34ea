package core

import "math"

// RunTimes learns the run times of pods as they end.
type RunTimes struct {
	instance *Instance
	number   int64
}

// NewRunTimes returns one of which nothing has ended, and that tells at most so many groups of pods apart.
func NewRunTimes(instance *Instance, most int) (*RunTimes, error) {
	number, _, err := instance.call("run_times_new", most)
	return &RunTimes{instance, number}, err
}

// PodKind is what tells the run time of a pod; the owner and the image are "" for none.
type PodKind struct {
	Requests, Namespace, Owner, Image string
	Stated                            float64 // run time in seconds, NaN for none
}

func (p *PodKind) arguments(runTimes int64) []any {
	arguments := []any{runTimes}
	for _, text := range []string{p.Requests, p.Namespace, p.Owner, p.Image} {
		arguments = append(arguments, []byte(text), len(text))
	}
	return append(arguments, p.Stated)
}

// Note counts a pod that ended after so many seconds.
func (r *RunTimes) Note(pod *PodKind, seconds float64) error {
	_, _, err := r.instance.call("run_times_note", append(pod.arguments(r.number), seconds)...)
	return err
}

// Estimate returns the mean of a pod's run time in seconds, and its spread: the logarithm of the 90th percentile over
// the median.
func (r *RunTimes) Estimate(pod *PodKind) (mean, spread float64, err error) {
	_, numbers, err := r.instance.call("run_times_estimate", append(pod.arguments(r.number), output(24))...)
	if err != nil {
		return 0, 0, err
	}
	return Scores(numbers).Of(1), Scores(numbers).Of(2), nil
}

// OrderFile is what an order file says, or a policy file.
type OrderFile struct {
	Card    []byte    // in JSON; that of a policy file is not checked
	Weights []float64 // none: it is a policy file
}

// ReadOrder reads the content of an order file, or of a policy file. The error is one line that names the file, the
// field and what would be right.
func ReadOrder(file string, content []byte) (*OrderFile, error) {
	instance, err := New()
	if err != nil {
		return nil, err
	}
	defer instance.Close()
	number, _, err := instance.call("order_file_new", content, len(content), []byte(file), len(file))
	if err != nil {
		return nil, err
	}
	card, err := instance.card("order_file_card", number)
	if err != nil {
		return nil, err
	}
	count, _, err := instance.call("order_file_weights", number, output(0), 0)
	if err != nil {
		return nil, err
	}
	_, written, err := instance.call("order_file_weights", number, output(8*count), int(count))
	if err != nil {
		return nil, err
	}
	weights := make([]float64, count)
	for n := range weights {
		weights[n] = Scores(written).Of(n)
	}
	return &OrderFile{card, weights}, nil
}

// Order scores waiting pods; the lowest score goes first.
type Order struct {
	instance *Instance
	number   int64
}

// NewOrder returns an order of a kind, see Order in core/src/order.rs, with the weights of a learned one.
func NewOrder(instance *Instance, kind int, weights []float64) (*Order, error) {
	runTimes, err := NewRunTimes(instance, 1)
	if err != nil {
		return nil, err
	}
	number, _, err := instance.call("order_new", runTimes.number, int64(kind), weights, len(weights), math.Inf(1), 0.0)
	return &Order{instance, number}, err
}

// WaitingPod is what orders know of a pod, and of the cluster at that moment.
type WaitingPod struct {
	Seconds, Spread float64 // estimated run time, and its spread
	Size, Share     float64 // what it requests, and that as a share of the cluster
	Wait, Arrived   float64 // seconds waited, and from the start of the scheduler to the arrival
	Free            float64 // free share of the cluster
	Waiting         float64 // pods that wait
}

// Score returns the score of a pod; one that is not a number is infinite.
func (o *Order) Score(pod *WaitingPod) (float64, error) {
	delay := 0.0 // no live scheduler knows it
	numbers := []float64{
		pod.Seconds, pod.Spread, pod.Size, pod.Share, pod.Wait, pod.Arrived, pod.Free, pod.Waiting, delay,
	}
	_, score, err := o.instance.call("order_scores", o.number, numbers, output(8), 1)
	if err != nil {
		return 0, err
	}
	return Scores(score).Of(0), nil
}
