package steersman

import (
	"strings"
	"sync"
	"time"

	"k8s.io/klog/v2"
)

// logInterval is the time between two log lines for the same reason: a service that was deleted is no line a pod.
const logInterval = time.Minute

// throttledLogger are log lines about scores that were not to be had.
type throttledLogger struct {
	logger klog.Logger
	now    func() time.Time

	mutex sync.Mutex
	last  map[string]time.Time
}

func newThrottledLogger(logger klog.Logger) *throttledLogger {
	return &throttledLogger{logger: logger, now: time.Now, last: map[string]time.Time{}}
}

// log says what went wrong, unless the same reason was the last line's of the last minute. Counters have them all.
func (l *throttledLogger) log(reason string, err error) {
	l.mutex.Lock()
	now := l.now()
	last, known := l.last[reason]
	silent := known && now.Sub(last) < logInterval
	if !silent {
		l.last[reason] = now
	}
	l.mutex.Unlock()
	if !silent {
		l.logger.Info("Nodes get no scores of the policy", "reason", reason, "error", strings.ToValidUTF8(err.Error(), "?"))
	}
}
