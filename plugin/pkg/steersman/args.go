package steersman

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime"

	"steersman.dev/plugin/internal/pluginargs"
)

// Modes: the policy is evaluated in this process; a score service is asked; either, but scores stay neutral.
const (
	modeNative  = "native"
	modeService = "service"
	modeShadow  = "shadow"
)

// Args are the plugin's arguments in a KubeSchedulerConfiguration.
type Args struct {
	// Mode is native (the default), service or shadow.
	Mode string `json:"mode"`
	// Policy is the name of a built-in policy; "" for the policy of the file.
	Policy string `json:"policy"`
	// PolicyFile was made by "steersman fit policy": a policy, and the profile of typical pods that some built-in ones
	// need, too. It is reloaded when it changes.
	PolicyFile string `json:"policyFile"`
	// Endpoint is the address of a score service: http://127.0.0.1:5000. Whatever nodes' metrics are needed for is asked of
	// it: the scores of policies on telemetry, and in the modes native and service which nodes keep a pod's latency limit.
	Endpoint string `json:"endpoint"`
	// TokenFile holds a bearer token for the service.
	TokenFile string `json:"tokenFile"`
	// CAFile holds the certificates that the service's is checked by; those of the system where it is "".
	CAFile string `json:"caFile"`
	// CertFile and KeyFile are a client certificate.
	CertFile string `json:"certFile"`
	KeyFile  string `json:"keyFile"`
	// Timeout is how long a pod may wait for the answer to each question: its scores, and its latency limit. 50ms.
	Timeout string `json:"timeout"`
	// Breaker says when a policy or service that fails is left alone for a while; scores and limits have one each.
	Breaker BreakerArgs `json:"breaker"`
	// LogScores logs the scores of each pod's best nodes, and where it went, whatever the verbosity.
	LogScores bool `json:"logScores"`

	timeout time.Duration
	open    time.Duration
}

// BreakerArgs say when a circuit breaker opens.
type BreakerArgs struct {
	// Failures open it, of which ten successes offset one: 5.
	Failures int `json:"failures"`
	// Open is how long it then stays so before one pod tries again: 10s.
	Open string `json:"open"`
}

const (
	minTimeout, maxTimeout = time.Millisecond, 5 * time.Second
	minOpen, maxOpen       = 100 * time.Millisecond, time.Hour
	maxFailures            = 1000
)

// parseArgs decodes and checks the arguments. The error is one line and names the field.
func parseArgs(given runtime.Object) (*Args, error) {
	args := &Args{
		Mode: modeNative, Timeout: "50ms", Breaker: BreakerArgs{Failures: 5, Open: "10s"},
	}
	if err := pluginargs.Decode(given, args); err != nil {
		return nil, err
	}
	if err := args.check(); err != nil {
		return nil, fmt.Errorf("args.%w", err)
	}
	return args, nil
}

// check returns the first field that is wrong, and what would be right.
func (a *Args) check() error {
	var err error
	switch {
	case !slices.Contains([]string{modeNative, modeService, modeShadow}, a.Mode):
		return fmt.Errorf("mode: %q is unknown; expected native, service or shadow", a.Mode)
	case a.Breaker.Failures < 1 || a.Breaker.Failures > maxFailures:
		return fmt.Errorf("breaker.failures: %d is out of range; expected 1 to %d", a.Breaker.Failures, maxFailures)
	}
	if a.timeout, err = parseDuration("timeout", a.Timeout, minTimeout, maxTimeout); err != nil {
		return err
	}
	if a.open, err = parseDuration("breaker.open", a.Breaker.Open, minOpen, maxOpen); err != nil {
		return err
	}
	return a.checkSource()
}

func (a *Args) checkSource() error {
	local := a.Policy != "" || a.PolicyFile != ""
	switch {
	case a.Mode == modeNative && !local:
		return errors.New(`policyFile: is missing; give a file that "steersman fit policy" made, or policy`)
	case a.Mode == modeService && local:
		return errors.New("policyFile, policy: are for the modes native and shadow; the service has its own")
	case a.Mode == modeService && a.Endpoint == "":
		return errors.New("endpoint: is missing; expected http://HOST:PORT of a score service")
	case a.Mode == modeShadow && local == (a.Endpoint != ""):
		return errors.New("mode: shadow asks a policy or a service; give either policyFile, policy, or endpoint")
	case a.Endpoint == "" && a.TokenFile+a.CAFile+a.CertFile+a.KeyFile != "":
		return errors.New("tokenFile, caFile, certFile, keyFile: are for a service; give endpoint")
	}
	return nil
}

func parseDuration(field, text string, least, most time.Duration) (time.Duration, error) {
	value, err := time.ParseDuration(text)
	if err != nil {
		return 0, fmt.Errorf("%s: %q is not a duration; expected one such as 50ms or 10s", field, text)
	}
	if value < least || value > most {
		return 0, fmt.Errorf("%s: %s is out of range; expected %s to %s", field, text, least, most)
	}
	return value, nil
}
