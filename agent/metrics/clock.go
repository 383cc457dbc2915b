package metrics

import "golang.org/x/sys/unix"

// clock collects whether something keeps the clock of this agent's machine right.
func clock() collector {
	synchronized := gauge("coopr_clock_synchronized",
		"1 if something keeps the clock of this agent's machine right, such as NTP, or else 0. Absent if the kernel does not say.")
	return collector{[]family{synchronized}, func(send emit) {
		const timeError = 5 // TIME_ERROR
		var t unix.Timex
		if state, err := unix.Adjtimex(&t); err == nil {
			send(synchronized, truth(state != timeError))
		}
	}}
}
