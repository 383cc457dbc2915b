package listener

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"
)

func TestConnectionsOfOneClient(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var limit atomic.Int64
	limit.Store(2)
	l := &limited{Listener: inner, log: slog.New(slog.DiscardHandler), limit: func() int { return int(limit.Load()) }, open: map[netip.Prefix]int{}}
	accepted := make(chan net.Conn, 16)
	go func() {
		defer close(accepted)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			if _, err := c.Write([]byte{'+'}); err != nil {
				t.Error(err)
			}
			accepted <- c
		}
	}()
	defer func() {
		_ = l.Close()
		for c := range accepted {
			_ = c.Close()
		}
	}()
	// dial reports whether a client of that address is accepted.
	dial := func(from string) bool {
		t.Helper()
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
		c, err := d.Dial("tcp", inner.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		_, err = io.ReadFull(c, make([]byte, 1))
		if err != nil && !errors.Is(err, io.EOF) {
			var reset *net.OpError
			if !errors.As(err, &reset) {
				t.Fatal(err)
			}
		}
		return err == nil
	}
	for range 2 {
		if !dial("127.0.0.1") {
			t.Error("refused within the limit")
		}
	}
	if dial("127.0.0.1") {
		t.Error("accepted beyond the limit")
	}
	if !dial("127.0.0.2") {
		t.Error("another client was refused")
	}
	first := <-accepted
	_ = first.Close()
	_ = first.Close() // counts once
	if !dial("127.0.0.1") || dial("127.0.0.1") {
		t.Error("a closed connection makes room for exactly one")
	}
	limit.Store(0)
	for range 5 {
		if !dial("127.0.0.1") {
			t.Error("refused without a limit")
		}
	}
}
