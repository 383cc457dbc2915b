// Package priority sets the scheduling priority of this process and of those that it starts.
//
// A member of a Raft group that waits for a processor looks dead to the others. An agent therefore runs
// before the other work of its machine, and what it starts does not.
package priority

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// Raised is the nice value of a process after Raise.
const Raised = -10

// Raise gives every thread of this process the nice value Raised; threads that start later inherit it.
// A process that was started with another nice value than 0 keeps it, because that value was chosen on
// purpose. The error is unix.EACCES where the process may not do so.
func Raise() error {
	if nice, err := Nice(); err != nil || nice != 0 {
		return err
	}
	// A thread that is still at 0 may start others while the threads are visited.
	for again := true; again; {
		again = false
		threads, err := os.ReadDir("/proc/self/task")
		if err != nil {
			return fmt.Errorf("list the threads: %w", err)
		}
		for _, t := range threads {
			id, err := strconv.Atoi(t.Name())
			if err != nil {
				return fmt.Errorf("list the threads: %w", err)
			}
			nice, err := of(id)
			if err == nil && nice == 0 {
				again = true
				err = unix.Setpriority(unix.PRIO_PROCESS, id, Raised)
			}
			if err != nil && !errors.Is(err, unix.ESRCH) { // ESRCH: the thread has ended
				return fmt.Errorf("set the nice value: %w", err)
			}
		}
	}
	return nil
}

// Nice returns the nice value of the calling thread.
func Nice() (int, error) { return of(0) }

// of returns the nice value of a thread; 0 means the calling one.
func of(thread int) (int, error) {
	p, err := unix.Getpriority(unix.PRIO_PROCESS, thread)
	if err != nil {
		return 0, fmt.Errorf("read the nice value: %w", err)
	}
	return 20 - p, nil // the system call returns 1 to 40
}

// Ordinary gives the calling thread, and the processes that it starts, the nice value 0 if it has a
// lower one. The caller has locked its goroutine to the thread.
func Ordinary() error {
	nice, err := Nice()
	if err == nil && nice < 0 {
		err = unix.Setpriority(unix.PRIO_PROCESS, 0, 0)
	}
	return err
}
