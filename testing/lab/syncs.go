package lab

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// syncs treats the calls of fsync and fdatasync of a machine's program.
type syncs struct {
	mu    sync.Mutex
	delay time.Duration
	fails syscall.Errno // 0: they succeed
	done  chan struct{} // closed when the program that ran last makes no more calls
}

// SetSync makes the disk of a machine with Spec.Syncs slow or sick: from now on, every fsync of its program takes
// delay longer and then fails with an error, or succeeds if the error is 0.
func (m *Machine) SetSync(delay time.Duration, fails syscall.Errno) {
	m.syncs.mu.Lock()
	defer m.syncs.mu.Unlock()
	m.syncs.delay, m.syncs.fails = delay, fails
}

// filterSyncs has the kernel ask before every fsync of the calling thread and of the programs that it starts. The
// questions are read from the file that it returns.
func filterSyncs() (int, error) {
	const number = 0 // the offset of the system call's number in seccomp_data
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: number},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jt: 2, K: unix.SYS_FSYNC},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jt: 1, K: unix.SYS_FDATASYNC},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_USER_NOTIF},
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	fd, _, errno := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_NEW_LISTENER,
		uintptr(unsafe.Pointer(&program)))
	runtime.KeepAlive(filter)
	if errno != 0 {
		return 0, fmt.Errorf("filter the system calls of the program: %w", errno)
	}
	return int(fd), nil
}

// The kernel's messages, as linux/seccomp.h has them.
const (
	questionSize = 80 // struct seccomp_notif, which begins with the question's id
	replySize    = 24 // struct seccomp_notif_resp: id, value, error, flags
)

// serve answers the questions of a program until it has ended.
func (s *syncs) serve(questions *os.File) {
	done := make(chan struct{})
	s.done = done
	go func() {
		defer close(done)
		defer questions.Close()
		var late sync.WaitGroup
		defer late.Wait()
		fd := int(questions.Fd())
		for {
			poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
			if _, err := unix.Poll(poll, -1); err != nil && !errors.Is(err, unix.EINTR) || poll[0].Revents&unix.POLLHUP != 0 {
				return
			}
			if poll[0].Revents&unix.POLLIN == 0 {
				continue
			}
			var question [questionSize]byte
			if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SECCOMP_IOCTL_NOTIF_RECV,
				uintptr(unsafe.Pointer(&question))); errno != 0 {
				continue // the program was killed meanwhile
			}
			s.mu.Lock()
			delay, fails := s.delay, s.fails
			s.mu.Unlock()
			var reply [replySize]byte
			copy(reply[:8], question[:8])
			if fails != 0 {
				binary.NativeEndian.PutUint32(reply[16:], uint32(-int32(fails)))
			} else {
				binary.NativeEndian.PutUint32(reply[20:], unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE)
			}
			late.Go(func() {
				time.Sleep(delay)
				// A program that was killed needs no reply.
				_, _, _ = unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SECCOMP_IOCTL_NOTIF_SEND, uintptr(unsafe.Pointer(&reply)))
			})
		}
	}()
}

// wait waits until the program that ran last makes no more calls.
func (s *syncs) wait() {
	if s.done != nil {
		<-s.done
		s.done = nil
	}
}
