package native

import (
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// LoadedPolicy is a policy that is in use.
type LoadedPolicy struct {
	Policy *Policy
	Number int       // 1 for the first that was read, and so on
	Since  time.Time // when it was read
}

// PolicyStore holds the policy in use, and reads its file again when that changes. A file that cannot be used changes
// nothing: the previous policy, if any, stays in use. A PolicyStore is safe for concurrent use.
type PolicyStore struct {
	name, path string
	onReload   func(*LoadedPolicy, error)
	loaded     atomic.Pointer[LoadedPolicy]

	mutex  sync.Mutex
	stamp  string // of the file at the last check: when it changed last, and its size; "" if there was none
	number int    // of the policy in use
}

// NewPolicyStore returns a store of the policy of a file; or, with a name, of the built-in policy of that name with the
// profile of the file, for which it may be missing ("") where the policy needs no profile. It has read nothing yet.
//
// onReload is called after each read of a changed file: with the policy in use, nil if there is none, and
// with what was wrong with the file, which is one line.
func NewPolicyStore(name, path string, onReload func(*LoadedPolicy, error)) *PolicyStore {
	return &PolicyStore{name: name, path: path, onReload: onReload, stamp: "unread"}
}

// LoadedPolicy returns the policy in use, nil if there is none.
func (s *PolicyStore) LoadedPolicy() *LoadedPolicy { return s.loaded.Load() }

// Reload reads the file if it changed since the last check.
func (s *PolicyStore) Reload() {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	now := "" // before it is read: what changes meanwhile is found by the next check
	if info, err := os.Stat(s.path); err == nil {
		now = fmt.Sprint(info.ModTime(), info.Size())
	}
	if now == s.stamp {
		return
	}
	s.stamp = now
	read, err := s.read()
	if err == nil {
		s.number++
		s.loaded.Store(&LoadedPolicy{read, s.number, time.Now()})
	}
	s.onReload(s.loaded.Load(), err)
}

// read never panics: whatever is in the file, the scheduler continues.
func (s *PolicyStore) read() (result *Policy, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			result, err = nil, fmt.Errorf("%s: cannot be read: %v", s.path, cause)
		}
	}()
	return readPolicy(s.name, s.path)
}
