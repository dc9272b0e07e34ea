package native

import (
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"steersman.dev/plugin/policy"
)

// Running is a policy that is in use.
type Running struct {
	Policy *policy.Policy
	Number int       // 1 for the first that was read, and so on
	Since  time.Time // when it was read
}

// Keeper has the policy that is in use, and reads its file anew when that changes. A file that cannot be used changes
// nothing: the former policy goes on, or there is none yet. Many goroutines may use it at a time.
type Keeper struct {
	name, path string
	told       func(*Running, error)
	running    atomic.Pointer[Running]

	mutex sync.Mutex
	stamp stamp // of the file when it was looked at last
	looks int
}

// stamp tells a file from what it was. It is empty if there is none.
type stamp struct {
	changed time.Time
	size    int64
}

// NewKeeper is a keeper of the policy of a file; or, with a name, of the built-in policy of that name with the mix of
// the file, for which there need not be one ("") where the policy needs no mix. It has read nothing yet.
//
// told is called after each look that found the file to be another: with the policy in use, nil if there is none, and
// with what was wrong with the file, which is one line.
func NewKeeper(name, path string, told func(*Running, error)) *Keeper {
	return &Keeper{name: name, path: path, told: told}
}

// Running is the policy in use, nil if there is none.
func (k *Keeper) Running() *Running { return k.running.Load() }

// Look reads the file if it is another than at the last look.
func (k *Keeper) Look() {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	found := stampOf(k.path) // before it is read: what changes meanwhile shows at the next look
	if k.looks++; k.looks > 1 && found == k.stamp {
		return
	}
	k.stamp = found
	read, err := k.read()
	if err == nil {
		number := 1
		if former := k.running.Load(); former != nil {
			number += former.Number
		}
		k.running.Store(&Running{read, number, time.Now()})
	}
	k.told(k.running.Load(), err)
}

// read never panics: whatever is in the file, the scheduler goes on.
func (k *Keeper) read() (found *policy.Policy, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			found, err = nil, fmt.Errorf("%s: cannot be read: %v", k.path, cause)
		}
	}()
	var mix *policy.Mix
	if k.path != "" {
		if found, err = policy.Load(k.path); err != nil {
			return nil, err
		}
		mix = found.Mix()
	}
	if k.name != "" {
		return policy.Local(k.name, mix)
	}
	return found, nil
}

func stampOf(path string) stamp {
	if found, err := os.Stat(path); path != "" && err == nil {
		return stamp{found.ModTime(), found.Size()}
	}
	return stamp{}
}
