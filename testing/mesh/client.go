package mesh

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"net/http/httptest"
	"time"

	"github.com/coopr/coopr/engine/model"
)

// Call asks one agent's API once.
func (a *Agent) Call(method, path string, body []byte, request string) (int, []byte) {
	return a.CallAs(Token, method, path, body, request)
}

// CallAs is like Call, with another token.
func (a *Agent) CallAs(token, method, path string, body []byte, request string) (int, []byte) {
	return a.CallFrom("192.0.2.1", token, method, path, body, request)
}

// CallFrom is like CallAs, from another address.
func (a *Agent) CallFrom(address, token, method, path string, body []byte, request string) (int, []byte) {
	req := httptest.NewRequest(method, path, bytes.NewReader(body))
	req.RemoteAddr = net.JoinHostPort(address, "1234")
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Content-Type", "application/json")
	if request != "" {
		req.Header.Set("Coopr-Request-Id", request)
	}
	rec := httptest.NewRecorder()
	a.agent.Handler().ServeHTTP(rec, req)
	return rec.Code, rec.Body.Bytes()
}

// Ask sends a request as a patient user does: to one agent after the other, with one request id,
// until one answers.
func (m *Mesh) Ask(method, path string, body any, into any) int {
	m.T.Helper()
	var b []byte
	switch v := body.(type) {
	case nil:
	case string:
		b = []byte(v)
	default:
		b, _ = json.Marshal(v)
	}
	request := fmt.Sprintf("ask-%d-%d", m.opts.Seed, m.rng.Uint64())
	start := time.Now()
	for i := m.rng.IntN(1 << 16); ; i++ {
		up := m.Up()
		if len(up) > 0 {
			a := up[i%len(up)]
			code, answer := a.Call(method, path, b, request)
			if code < 500 {
				if code >= 300 {
					m.Tracef("%s %s on %s: %d %s", method, path, a.Name, code, answer)
				} else if into != nil {
					if err := json.Unmarshal(answer, into); err != nil {
						m.T.Fatalf("%s %s: %v: %s", method, path, err, answer)
					}
				}
				return code
			}
			m.Tracef("%s %s on %s: %d %s", method, path, a.Name, code, answer)
		}
		if time.Since(start) > patience {
			m.T.Fatalf("seed %d: nobody answers %s %s", m.opts.Seed, method, path)
		}
		time.Sleep(300 * time.Millisecond)
	}
}

// Must is Ask, and fails the test unless the answer is a success.
func (m *Mesh) Must(method, path string, body, into any) {
	m.T.Helper()
	if code := m.Ask(method, path, body, into); code >= 300 {
		m.T.Fatalf("seed %d: %s %s: %d", m.opts.Seed, method, path, code)
	}
}

// Define writes the simulated cluster's definitions.
func (m *Mesh) Define() {
	m.T.Helper()
	m.AwaitLeader()
	m.Must("POST", "/v1/import", definitions, nil)
}

// started is the answer of the API about a new operation.
type started struct {
	Operation struct{ ID string }
	Cluster   struct{ ID string }
}

// Create asks for a cluster and returns its id and its operation's.
func (m *Mesh) Create(name string, nodes int, onFailure string) (cluster, operation string) {
	m.T.Helper()
	var s started
	m.Must("POST", "/v1/clusters", map[string]any{"name": name, "clusterTemplate": "trio", "numMachines": nodes, "onFailure": onFailure}, &s)
	m.Tracef("cluster %s, operation %s", s.Cluster.ID, s.Operation.ID)
	return s.Cluster.ID, s.Operation.ID
}

// Delete asks for a cluster's deletion.
func (m *Mesh) Delete(cluster string) (operation string) {
	m.T.Helper()
	var s started
	m.Must("DELETE", "/v1/clusters/"+cluster, nil, &s)
	return s.Operation.ID
}

// Operation reads an operation from any agent that answers.
func (m *Mesh) Operation(id string) (op model.Operation) {
	m.T.Helper()
	m.Must("GET", "/v1/operations/"+id, nil, &op)
	return op
}

// AwaitEnd waits for an operation's end, as the leader has it.
func (m *Mesh) AwaitEnd(id string) model.OperationStatus {
	m.T.Helper()
	var st model.OperationStatus
	m.Until("the end of operation "+id, func() bool {
		l := m.Leader()
		if l == nil {
			return false
		}
		r := l.agent.Replica()
		if r == nil {
			return false
		}
		op, ok := r.Machine.View().Operation("", id)
		if !ok {
			return false
		}
		st = op.Status
		return st.Ended()
	})
	m.Tracef("operation %s ended: %s", id, st)
	return st
}
