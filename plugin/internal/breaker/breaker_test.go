package breaker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

var errFailed = errors.New("failed")

// clock is a time that tests set.
type clock struct{ nanoseconds atomic.Int64 }

func (c *clock) now() time.Time          { return time.Unix(1000, c.nanoseconds.Load()) }
func (c *clock) advance(d time.Duration) { c.nanoseconds.Add(int64(d)) }

func withClock(failures int, open time.Duration) (*Breaker, *clock) {
	b, c := New(failures, open), &clock{}
	b.now = c.now
	return b, c
}

// TestStates follows scripts: "+" a request that succeeds, "-" one that fails, "x" one that is cancelled, "a" one that
// is allowed and not done yet, "!" one that must not be allowed, "w" waits for a second.
func TestStates(t *testing.T) {
	for _, test := range []struct {
		script string
		want   State
	}{
		{"", Closed},
		{"--", Closed},
		{"---", Open},
		{"--+-", Closed}, // one success does not compensate a failure, but it keeps it from being the third
		{"--++++++++++--", Open},
		{"--++++++++++-", Closed},
		{"xxxxx", Closed},
		{"---!!", Open},
		{"---wwwww!", Open},
		{"---wwwwwwwwww", HalfOpen},
		{"---wwwwwwwwwwa!!", HalfOpen},
		{"---wwwwwwwwww+", Closed},
		{"---wwwwwwwwww+--", Closed},
		{"---wwwwwwwwww-", Open},
		{"---wwwwwwwwww-wwwwwwwww!", Open},
		{"---wwwwwwwwww-wwwwwwwwww+", Closed},
		{"---wwwwwwwwwwx", HalfOpen},
		{"---wwwwwwwwwwx+", Closed},
		{"---wwwwwwwwwwawwwwwwwww!", HalfOpen},
		{"---wwwwwwwwwwawwwwwwwwww+", Closed}, // the probe was lost
		{"-+-+-+-", Open},                     // a service that fails every other time
	} {
		t.Run(test.script, func(t *testing.T) {
			b, c := withClock(3, 10*time.Second)
			for i, step := range test.script {
				if step == 'w' {
					c.advance(time.Second)
					continue
				}
				if allowed := b.Allow(); allowed == (step == '!') {
					t.Fatalf("step %d: allowed %v", i, allowed)
				}
				switch step {
				case '+':
					b.Done(nil)
				case '-':
					b.Done(errFailed)
				case 'x':
					b.Done(fmt.Errorf("asking: %w", context.Canceled))
				}
			}
			if got := b.State(); got != test.want {
				t.Errorf("is %v, not %v", got, test.want)
			}
		})
	}
}

func TestAnswersFromBeforeItOpenedChangeNothing(t *testing.T) {
	b, c := withClock(1, time.Second)
	for range 3 {
		b.Allow()
	}
	b.Done(errFailed)
	c.advance(time.Second / 2)
	b.Done(nil)
	b.Done(errFailed)
	if b.State() != Open || b.Allow() {
		t.Errorf("is %v", b.State())
	}
	c.advance(time.Second / 2)
	if b.State() != HalfOpen {
		t.Errorf("was opened for longer: is %v", b.State())
	}
}

func TestNothingIsTakenAsTheLeast(t *testing.T) {
	b := New(0, 0)
	b.Allow()
	b.Done(errFailed)
	if b.level == 0 {
		t.Error("the failure was not counted")
	}
}

func TestOneProbeAtATime(t *testing.T) {
	b, c := withClock(1, time.Second)
	b.Allow()
	b.Done(errFailed)
	c.advance(time.Second)
	var allowed atomic.Int64
	var all sync.WaitGroup
	for range 64 {
		all.Go(func() {
			if b.Allow() {
				allowed.Add(1)
			}
			b.State()
		})
	}
	all.Wait()
	if allowed.Load() != 1 {
		t.Errorf("%d probes at a time", allowed.Load())
	}
}
