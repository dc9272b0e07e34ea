package steersman

import (
	"strings"
	"sync"
	"time"

	"k8s.io/klog/v2"
)

// logInterval is the time between two log lines for the same reason: a service that was deleted is no line a pod.
const logInterval = time.Minute

// What is not done when a source fails, as log lines say it.
const (
	noScores       = "Nodes get no scores of the policy"
	noLatencyLimit = "The latency limit was not applied"
)

// throttledLogger logs what is not done and why: at most one line a minute for each and each reason.
type throttledLogger struct {
	logger klog.Logger
	now    func() time.Time

	mutex sync.Mutex
	last  map[logKey]time.Time
}

// logKey tells log lines apart of which one a minute is enough.
type logKey struct{ effect, reason string }

func newThrottledLogger(logger klog.Logger) *throttledLogger {
	return &throttledLogger{logger: logger, now: time.Now, last: map[logKey]time.Time{}}
}

// log says what is not done (noScores, noLatencyLimit) and why, at most once a minute per reason. Counters have them
// all.
func (l *throttledLogger) log(effect, reason string, err error) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	key, now := logKey{effect, reason}, l.now()
	if last, known := l.last[key]; known && now.Sub(last) < logInterval {
		return
	}
	l.last[key] = now
	l.logger.Info(effect, "reason", reason, "error", strings.ToValidUTF8(err.Error(), "?"))
}
