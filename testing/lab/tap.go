package lab

import (
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// openTAP creates a network device in the calling process's namespace; its frames are read from and
// written to the file.
func openTAP(name string) (int, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("open /dev/net/tun: %w", err)
	}
	request, err := unix.NewIfreq(name)
	if err == nil {
		request.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI)
		err = unix.IoctlIfreq(fd, unix.TUNSETIFF, request)
	}
	if err != nil {
		unix.Close(fd)
		return 0, fmt.Errorf("make network device %s: %w", name, err)
	}
	return fd, nil
}

// device returns the lines for "ip" that bring a device up.
func device(name, cidr string, mac [6]byte) []string {
	return []string{
		fmt.Sprintf("link set dev %s address %s mtu %d", name, net.HardwareAddr(mac[:]), mtu),
		fmt.Sprintf("addr add %s dev %s", cidr, name),
		fmt.Sprintf("link set dev %s up", name),
	}
}

// sendFD passes an open file to the process at the other end of a socket pair.
func sendFD(socket, fd int) error {
	return unix.Sendmsg(socket, []byte{'f'}, unix.UnixRights(fd), nil, 0)
}

// receiveFD receives the file that sendFD passed. If the other end sent an error's text instead, it
// returns that as the error.
func receiveFD(socket *os.File) (int, error) {
	raw, err := socket.SyscallConn()
	if err != nil {
		return 0, err
	}
	text, rights := make([]byte, 4096), make([]byte, unix.CmsgSpace(4))
	var n, rn int
	rerr := raw.Read(func(fd uintptr) bool {
		n, rn, _, _, err = unix.Recvmsg(int(fd), text, rights, unix.MSG_CMSG_CLOEXEC)
		return !errors.Is(err, unix.EAGAIN)
	})
	if err = errors.Join(rerr, err); err != nil {
		return 0, err
	}
	messages, err := unix.ParseSocketControlMessage(rights[:rn])
	if err != nil {
		return 0, err
	}
	for i := range messages {
		if fds, err := unix.ParseUnixRights(&messages[i]); err == nil && len(fds) == 1 {
			return fds[0], nil
		}
	}
	return 0, errors.New(string(text[:n]))
}
