// Package breaker keeps a failing service from costing every request a timeout.
package breaker

import (
	"context"
	"errors"
	"sync"
	"time"
)

// State says whether a breaker lets requests through; it is its name in metrics.
type State string

// The states of a breaker.
const (
	Closed   State = "closed"    // all requests pass
	Open     State = "open"      // no request passes
	HalfOpen State = "half-open" // one at a time passes, to see whether the service is back
)

// States are all states.
var States = []State{Closed, Open, HalfOpen}

// successesPerFailure is how many successes compensate one failure. So a service that fails occasionally stays in use,
// and one that fails more often than once in that many requests does not, however its failures are spread.
const successesPerFailure = 10

// Breaker counts failures of a service. It is safe for concurrent use.
type Breaker struct {
	limit int // in parts of a failure, successesPerFailure of which are one
	open  time.Duration
	now   func() time.Time

	mutex   sync.Mutex
	state   State
	level   int       // failures that are not compensated, in the same parts
	since   time.Time // when it opened, or when its probe began
	probing bool      // a probe is under way
}

// New returns a closed breaker that opens after so many failures, and lets a probe through when it was open for so
// long. Fewer than one failure, or no time, are taken as one failure and as a nanosecond.
func New(failures int, open time.Duration) *Breaker {
	return &Breaker{limit: max(failures, 1) * successesPerFailure, open: max(open, 1), now: time.Now, state: Closed}
}

// Allow reports whether a request may be made. Each one that was allowed must be followed by Done.
func (b *Breaker) Allow() bool {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	b.refresh()
	if b.state == HalfOpen && !b.probing {
		b.probing, b.since = true, b.now()
		return true
	}
	return b.state == Closed
}

// Done tells how a request that was allowed went. One that its asker gave up (context.Canceled) says nothing of the
// service.
func (b *Breaker) Done(err error) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	switch {
	case b.state == Open: // the answer to a request from before it opened
	case errors.Is(err, context.Canceled):
		b.probing = false
	case err != nil && b.state == HalfOpen:
		b.trip()
	case err != nil:
		b.level += successesPerFailure
		if b.level >= b.limit {
			b.trip()
		}
	case b.state == HalfOpen:
		b.state, b.level, b.probing = Closed, 0, false
	default:
		b.level = max(b.level-1, 0)
	}
}

// State returns the state now.
func (b *Breaker) State() State {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	b.refresh()
	return b.state
}

func (b *Breaker) trip() {
	b.state, b.since, b.probing = Open, b.now(), false
}

// refresh lets time pass: an open breaker gets half-open. A probe that was never reported is given up after as long.
func (b *Breaker) refresh() {
	if b.now().Sub(b.since) < b.open {
		return
	}
	if b.probing = false; b.state == Open {
		b.state = HalfOpen
	}
}
