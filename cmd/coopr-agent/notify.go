package main

import (
	"errors"
	"fmt"
	"net"
	"os"
)

// notify tells the service manager how the agent is, in its words: READY=1,
// STOPPING=1 (sd_notify(3)). Where none waits to hear it, nothing happens.
func notify(state string) error {
	socket := os.Getenv("NOTIFY_SOCKET")
	if socket == "" {
		return nil
	}
	// Go reads the @ of an abstract socket as systemd writes it.
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err == nil {
		_, err = conn.Write([]byte(state))
		err = errors.Join(err, conn.Close())
	}
	if err != nil {
		return fmt.Errorf("tell the service manager %s: %w", state, err)
	}
	return nil
}
