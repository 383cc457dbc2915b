package e2e

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/client"
)

// forwarding is a command that forwards a port.
type forwarding struct {
	m    *mesh
	cmd  *exec.Cmd
	addr string
	errs bytes.Buffer
	// broke is set once a connection broke, as the leader was lost.
	broke bool
}

// forwards starts a command that forwards a port of a node through an agent.
func (m *mesh) forwards(a *agent, node, port string) *forwarding {
	m.t.Helper()
	f := &forwarding{m: m, cmd: exec.CommandContext(m.t.Context(), filepath.Join(m.bin, "coopr"), "node", "port-forward", node, port)}
	f.cmd.Dir, f.cmd.Stderr = m.dir, &f.errs
	f.cmd.Env = append(m.env(), "COOPR_ADDR="+a.addr(httpPort), "COOPR_TOKEN="+m.token)
	out, err := f.cmd.StdoutPipe()
	if err == nil {
		err = f.cmd.Start()
	}
	if err != nil {
		m.t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	words := strings.Fields(line)
	if err != nil || len(words) < 2 {
		_ = f.cmd.Wait()
		m.t.Fatalf("%q: %v: %s", line, err, f.errs.String())
	}
	f.addr = words[1]
	return f
}

// dial opens a connection.
func (f *forwarding) dial() *net.TCPConn {
	f.m.t.Helper()
	conn, err := new(net.Dialer).DialContext(f.m.context(), "tcp", f.addr)
	if err != nil {
		f.m.t.Fatal(err)
	}
	f.m.t.Cleanup(func() { conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(patience))
	return conn.(*net.TCPConn)
}

// ends interrupts the command and returns what it has said.
func (f *forwarding) ends() string {
	f.m.t.Helper()
	if err := f.cmd.Process.Signal(os.Interrupt); err != nil {
		f.m.t.Fatal(err)
	}
	_ = f.cmd.Wait() // its exit code says it
	if code := f.cmd.ProcessState.ExitCode(); code != 130 {
		f.m.t.Errorf("%v ended with %d: %s", f.cmd.Args[1:], code, f.errs.String())
	}
	return f.errs.String()
}

// opens opens a connection through which word comes back, again if the leader was lost meanwhile.
func (f *forwarding) opens(word string) *net.TCPConn {
	f.m.t.Helper()
	for {
		conn, got := f.dial(), make([]byte, len(word))
		_, err := io.WriteString(conn, word)
		if err == nil {
			_, err = io.ReadFull(conn, got)
		}
		switch {
		case err == nil && string(got) == word:
			return conn
		case err == nil || errors.Is(err, os.ErrDeadlineExceeded):
			f.m.t.Fatalf("%q comes back: %v", got, err)
		}
		f.broke = true
		f.m.leader()
	}
}

// carries sends bytes through a connection and reports whether all of them come back, after the end of that direction.
func (f *forwarding) carries(sent []byte) bool {
	f.m.t.Helper()
	conn := f.opens("hello") // before the client has ended its direction
	go func() {
		_, _ = conn.Write(sent)
		_ = conn.CloseWrite()
	}()
	got, err := io.ReadAll(conn)
	if whole := err == nil && bytes.Equal(got, sent); whole || !bytes.HasPrefix(sent, got) {
		return whole
	}
	f.broke = true
	f.m.leader()
	return false
}

// TestPortForward connects to a port of a node of the provider local through an agent that does not lead.
func TestPortForward(t *testing.T) {
	t.Parallel()
	m := startMesh(t)
	m.importShop()
	m.must("cluster", "create", "shop", "--template", "shop", "--nodes", "4", "--yes")
	nodes, _, err := m.api().Nodes(m.context(), "shop", client.Page{}, client.Read{})
	if err != nil || len(nodes) == 0 {
		t.Fatalf("%d nodes: %v", len(nodes), err)
	}
	const node = "shop/1000"
	var address, id string
	for _, n := range nodes {
		if n.ShortName() == node || strings.HasSuffix(n.ID, "1000") {
			address, id = n.IPAddresses["access_v4"], n.ID
		}
	}
	echo, err := new(net.ListenConfig).Listen(t.Context(), "tcp", net.JoinHostPort(address, "0"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { echo.Close() })
	go func() {
		for {
			conn, err := echo.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				_, _ = io.Copy(conn, conn)
			}()
		}
	}()
	_, port, err := net.SplitHostPort(echo.Addr().String())
	if err != nil {
		t.Fatal(err)
	}

	f := m.forwards(m.follower(), node, port)
	for sent := bytes.Repeat([]byte("bytes "), 100_000); !f.carries(sent); {
		if !f.broke {
			t.Fatal("not all bytes come back")
		}
	}
	f.opens("open")
	if said := f.ends(); said != "" && !f.broke {
		t.Errorf("the command says %s", said)
	}
	m.await("the audit log", func() error {
		log := m.must("audit", "list", "--type", "node.forward", "-o", "json")
		ends := strings.Contains(log, "600005 bytes sent, 600005 received") && strings.Contains(log, "4 bytes sent, 4 received")
		if !strings.Contains(log, id+": port "+port+`"`) || !f.broke && !ends {
			return fmt.Errorf("it has\n%s", log)
		}
		return nil
	})

	// The agent that connects is killed.
	reader, writer := io.Pipe()
	req, err := http.NewRequestWithContext(m.context(), http.MethodPost,
		"http://"+m.follower().addr(httpPort)+"/v1/nodes/"+id+"/forward?port="+port, reader)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+m.token)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	through := res.Header.Get(api.HeaderThrough)
	writer.Close()
	res.Body.Close()
	leader := m.leader()
	var killed, asked *agent
	for _, a := range m.agents {
		switch {
		case a.name == through:
			killed = a
		case asked == nil || a != leader:
			asked = a
		}
	}
	if killed == nil {
		t.Fatalf("agent %q has connected: %s", through, res.Status)
	}
	f = m.forwards(asked, node, port)
	conn := f.opens("still there")
	killed.kill()
	if _, err := io.ReadAll(conn); err != nil {
		t.Error(err)
	}
	if said := f.ends(); !strings.Contains(said, "the connection to the node broke") || !strings.Contains(said, "agent "+through) {
		t.Errorf("the command says %q", said)
	}
	killed.start()
	m.ready()

	// The node is a part of an agent's machine, so that not even an administrator of the tenant may reach its ports.
	root := m.token
	defer func() { m.token = root }()
	for role, why := range map[string]string{"admin": "host:exec", "read": "exec"} {
		m.token = root
		m.token = strings.TrimSpace(m.must("token", "create", "ann-"+role, "--role", role))
		if s := m.coopr("node", "port-forward", "--stdio", node, port); s.code != 1 || !strings.Contains(s.err, why) {
			t.Errorf("role %s: %d %s%s", role, s.code, s.out, s.err)
		}
	}
	m.token = root
	m.must("cluster", "delete", "shop", "--yes")
	m.stop()
}
