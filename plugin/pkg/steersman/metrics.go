package steersman

import (
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"

	"steersman.dev/plugin/internal/breaker"
	"steersman.dev/plugin/internal/native"
)

// The plugin's metrics, on the scheduler's own /metrics.
var (
	decisions = metrics.NewCounterVec(&metrics.CounterOpts{
		Name: "steersman_plugin_decisions_total",
		Help: "Pods by whether the scores of the policy counted: scored, or neutral (in shadow all).",
	}, []string{"profile", "outcome"})
	unscored = metrics.NewCounterVec(&metrics.CounterOpts{
		Name: "steersman_plugin_unscored_total", Help: "Pods whose scores did not count, by reason; in shadow all.",
	}, []string{"profile", "reason"})
	agreement = metrics.NewCounterVec(&metrics.CounterOpts{
		Name: "steersman_plugin_agreement_total", Help: "Pods bound: whether they went where the policy wanted.",
	}, []string{"profile", "agrees"})
	latencyLimits = metrics.NewCounterVec(&metrics.CounterOpts{
		Name: "steersman_plugin_latency_limits_total",
		Help: "Attempts at pods with a hard limit of latency, by what became of it: kept_safely, kept, kept_by_no_node, " +
			"not_measured, no_answer (the service was not asked, or gave none in time), or relaxed (other filters left none of " +
			"the nodes that keep it).",
	}, []string{"profile", "outcome"})
	seconds = metrics.NewHistogramVec(&metrics.HistogramOpts{
		Name: "steersman_plugin_decision_duration_seconds",
		Help: "Time that scores took.", Buckets: metrics.ExponentialBuckets(0.00001, 2, 20),
	}, []string{"profile"})
	policyReads = metrics.NewCounterVec(&metrics.CounterOpts{
		Name: "steersman_plugin_policy_reads_total", Help: "Reads of the policy file by result: loaded or refused.",
	}, []string{"profile", "result"})
	policyLoaded = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Name: "steersman_plugin_policy_loaded", Help: "1 if there is a policy.",
	}, []string{"profile"})
	policySince = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Name: "steersman_plugin_policy_loaded_timestamp_seconds", Help: "Unix time at which the policy in use was read.",
	}, []string{"profile"})
	breakerState = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Name: "steersman_plugin_breaker_state",
		Help: "1 for the state of a circuit breaker (of scores, and with a service of limits): closed, open or half-open.",
	}, []string{"profile", "breaker", "state"})
)

var register = sync.OnceFunc(func() {
	legacyregistry.MustRegister(
		decisions, unscored, agreement, latencyLimits, seconds, policyReads, policyLoaded, policySince, breakerState)
})

// recorder counts for one profile.
type recorder struct{ profile string }

func newRecorder(profile string) *recorder {
	register()
	// A series that begins with 1 has no increase, so no alert would see the first refusal.
	for _, result := range []string{"loaded", "refused"} {
		policyReads.WithLabelValues(profile, result).Add(0)
	}
	return &recorder{profile}
}

func (r *recorder) observeScored() { decisions.WithLabelValues(r.profile, "scored").Inc() }

func (r *recorder) observeNeutral(reason string) {
	decisions.WithLabelValues(r.profile, "neutral").Inc()
	unscored.WithLabelValues(r.profile, reason).Inc()
}

func (r *recorder) observeDuration(took time.Duration) {
	seconds.WithLabelValues(r.profile).Observe(took.Seconds())
}

func (r *recorder) observeLimit(outcome string) {
	latencyLimits.WithLabelValues(r.profile, strings.ReplaceAll(outcome, " ", "_")).Inc()
}

func (r *recorder) observeBinding(agrees bool) {
	agreement.WithLabelValues(r.profile, strconv.FormatBool(agrees)).Inc()
}

// observePolicyRead records a look at the policy file: the policy in use, and what was wrong with the file.
func (r *recorder) observePolicyRead(loaded *native.LoadedPolicy, err error) {
	result, value := "loaded", 0.0
	if err != nil {
		result = "refused"
	}
	if loaded != nil {
		value = 1
		policySince.WithLabelValues(r.profile).Set(float64(loaded.Since.UnixNano()) / 1e9)
	}
	policyReads.WithLabelValues(r.profile, result).Inc()
	policyLoaded.WithLabelValues(r.profile).Set(value)
}

func (r *recorder) observeBreaker(name string, now breaker.State) {
	for _, state := range breaker.States {
		value := 0.0
		if state == now {
			value = 1
		}
		breakerState.WithLabelValues(r.profile, name, string(state)).Set(value)
	}
}
