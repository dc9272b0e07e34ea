package native

import (
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"steersman.dev/plugin/internal/policy"
)

// LoadedPolicy is a policy that is in use.
type LoadedPolicy struct {
	Policy *policy.Policy
	Number int       // 1 for the first that was read, and so on
	Since  time.Time // when it was read
}

// PolicyStore has the policy that is in use, and reads its file again when that changes. A file that cannot be used changes
// nothing: the former policy continues, or there is none yet. Many goroutines may use it at a time.
type PolicyStore struct {
	name, path string
	onReload   func(*LoadedPolicy, error)
	loaded     atomic.Pointer[LoadedPolicy]

	mutex sync.Mutex
	stamp stamp // of the file when it was looked at last
	reads int
}

// stamp tells a file from what it was. It is empty if there is none.
type stamp struct {
	changed time.Time
	size    int64
}

// NewPolicyStore is a store of the policy of a file; or, with a name, of the built-in policy of that name with the profile of
// the file, for which it may be missing ("") where the policy needs no mix. It has read nothing yet.
//
// onReload is called after each read of a changed file: with the policy in use, nil if there is none, and
// with what was wrong with the file, which is one line.
func NewPolicyStore(name, path string, onReload func(*LoadedPolicy, error)) *PolicyStore {
	return &PolicyStore{name: name, path: path, onReload: onReload}
}

// LoadedPolicy is the policy in use, nil if there is none.
func (k *PolicyStore) LoadedPolicy() *LoadedPolicy { return k.loaded.Load() }

// Reload reads the file if it is another than at the last look.
func (k *PolicyStore) Reload() {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	result := stampOf(k.path) // before it is read: what changes meanwhile shows at the next look
	if k.reads++; k.reads > 1 && result == k.stamp {
		return
	}
	k.stamp = result
	read, err := k.read()
	if err == nil {
		number := 1
		if former := k.loaded.Load(); former != nil {
			number += former.Number
		}
		k.loaded.Store(&LoadedPolicy{read, number, time.Now()})
	}
	k.onReload(k.loaded.Load(), err)
}

// read never panics: whatever is in the file, the scheduler continues.
func (k *PolicyStore) read() (result *policy.Policy, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			result, err = nil, fmt.Errorf("%s: cannot be read: %v", k.path, cause)
		}
	}()
	var profile *policy.Profile
	if k.path != "" {
		if result, err = policy.Load(k.path); err != nil {
			return nil, err
		}
		profile = result.Profile()
	}
	if k.name != "" {
		return policy.Builtin(k.name, profile)
	}
	return result, nil
}

func stampOf(path string) stamp {
	if result, err := os.Stat(path); path != "" && err == nil {
		return stamp{result.ModTime(), result.Size()}
	}
	return stamp{}
}
