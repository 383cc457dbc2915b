package main

import (
	"errors"
	"fmt"
	"net"
	"os"
)

// notify sends a state of the agent, such as READY=1 or STOPPING=1, to the service
// manager (sd_notify(3)). It does nothing if there is none.
func notify(state string) error {
	socket := os.Getenv("NOTIFY_SOCKET")
	if socket == "" {
		return nil
	}
	// systemd and Go both write an abstract socket with a leading @.
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err == nil {
		_, err = conn.Write([]byte(state))
		err = errors.Join(err, conn.Close())
	}
	if err != nil {
		return fmt.Errorf("send %s to the service manager: %w", state, err)
	}
	return nil
}
