package prometheus

import (
	"sync"
	"time"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

const subsystem = "steersman_plugin"

// What the scheduler's own /metrics say of telemetry.
var (
	ageSeconds = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Subsystem: subsystem, Name: "telemetry_age_seconds", StabilityLevel: metrics.ALPHA,
		Help: "Since the newest sample of a feature was taken, at the last round of questions, of the node where that is longest.",
	}, []string{"feature"})
	nodeStates = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Subsystem: subsystem, Name: "telemetry_nodes", StabilityLevel: metrics.ALPHA,
		Help: "Nodes by how their value of a feature is: fresh, stale or missing.",
	}, []string{"feature", "state"})
	rounds = metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem: subsystem, Name: "telemetry_rounds_total", StabilityLevel: metrics.ALPHA,
		Help: "Rounds of questions to Prometheus, by result: complete, partial or failed.",
	}, []string{"result"})
	droppedValues = metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem: subsystem, Name: "telemetry_values_dropped_total", StabilityLevel: metrics.ALPHA,
		Help: "Values that were not taken, by reason.",
	}, []string{"reason"})
)

var register = sync.OnceFunc(func() {
	legacyregistry.MustRegister(ageSeconds, nodeStates, rounds, droppedValues)
})

func countDropped(reason string) { droppedValues.WithLabelValues(reason).Inc() }

func countRound(asked, failed int) {
	result := "complete"
	if failed > 0 {
		result = "partial"
	}
	if failed > 0 && failed == asked {
		result = "failed"
	}
	rounds.WithLabelValues(result).Inc()
}

// showAges says how old values are.
func showAges(readings *Readings, nodes map[string]bool, now time.Time) {
	for _, feature := range Features {
		if readings.configuration.Features[feature].Query == "" {
			continue
		}
		limit, oldest := readings.configuration.ageLimit(feature), time.Duration(-1)
		states := map[string]int{"fresh": 0, "stale": 0, "missing": 0}
		for node := range nodes {
			last, there := readings.last(feature, "", node)
			switch age := now.Sub(last.taken); {
			case !there || last.taken.IsZero():
				states["missing"]++
			case age <= limit:
				states["fresh"]++
				oldest = max(oldest, age)
			default:
				states["stale"]++
				oldest = max(oldest, age)
			}
		}
		for state, count := range states {
			nodeStates.WithLabelValues(feature, state).Set(float64(count))
		}
		if oldest >= 0 {
			ageSeconds.WithLabelValues(feature).Set(oldest.Seconds())
		}
	}
}
