package agent

import (
	"crypto/tls"
	"net"
	"net/http"
	"sync/atomic"

	"github.com/coopr/coopr/agent/config"
)

// listenHTTP binds the API's port, with TLS everywhere but on loopback in dev
// mode, or behind a proxy that was asked for.
func (a *Agent) listenHTTP() (net.Listener, error) {
	l, err := net.Listen("tcp", a.cfg.HTTP.Addr)
	if err != nil {
		return nil, err
	}
	l = &perClient{Listener: l, log: a.log, limit: func() int { return a.settings.Load().Limits.HTTPConns }, open: map[string]int{}}
	switch a.cfg.HTTPSecurity() {
	case config.OwnCertificate:
		files := &certFiles{settings: &a.settings}
		if _, err := files.get(nil); err != nil {
			_ = l.Close()
			return nil, err
		}
		return tls.NewListener(l, &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: files.get, NextProtos: []string{"h2", "http/1.1"}}), nil
	case config.MeshCertificate:
		names := append([]string{"localhost", "127.0.0.1", a.cfg.Name}, a.cfg.HTTP.Names...)
		if h, _, err := net.SplitHostPort(a.mux.Addr().String()); err == nil {
			names = append(names, h)
		}
		return tls.NewListener(l, a.identity.HTTPSConfig(names)), nil
	}
	return l, nil
}

// certFiles reads the operator's certificate at every handshake, so that a
// renewed one is served without a restart. The files are small and cached by
// the kernel.
type certFiles struct {
	settings *atomic.Pointer[config.Config]
}

func (c *certFiles) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	now := c.settings.Load().HTTP
	pair, err := tls.LoadX509KeyPair(now.TLSCert, now.TLSKey)
	return &pair, err
}

// fromPeer serves requests that other agents pass on. The peer port has
// authenticated the agent; whose request it is the token in it still says.
func fromPeer(h http.Handler) http.Handler { return h }
