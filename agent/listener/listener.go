package listener

import (
	"crypto/tls"
	"log/slog"
	"net"
	"net/netip"

	"github.com/coopr/coopr/agent/config"
)

// Config configures a listener.
type Config struct {
	// Settings returns the configuration as it is now: the limit of connections and
	// the operator's certificate follow a reload.
	Settings func() *config.Config
	// MeshTLS returns a configuration with a certificate of the mesh's own CA.
	MeshTLS func() *tls.Config
	Logger  *slog.Logger
}

// Listen binds the port of the API. It uses TLS, except in dev mode (which is limited to
// loopback) and with the setting insecure_plaintext (for a proxy that terminates TLS).
func Listen(cfg Config) (net.Listener, error) {
	settings := cfg.Settings()
	inner, err := net.Listen("tcp", settings.HTTP.Addr)
	if err != nil {
		return nil, err
	}
	l := &limited{Listener: inner, log: cfg.Logger, limit: func() int { return cfg.Settings().Limits.HTTPConns }, open: map[netip.Prefix]int{}}
	switch settings.HTTPSecurity() {
	case config.OwnCertificate:
		files := certificateFiles{cfg.Settings}
		if _, err := files.load(nil); err != nil {
			_ = l.Close()
			return nil, err
		}
		return tls.NewListener(l, &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: files.load, NextProtos: []string{"h2", "http/1.1"}}),
			nil
	case config.MeshCertificate:
		return tls.NewListener(l, cfg.MeshTLS()), nil
	default:
	}
	return l, nil
}

// certificateFiles loads the operator's certificate at every handshake, so that a
// renewed one is used without a restart. The files are small, and the kernel caches
// them.
type certificateFiles struct{ settings func() *config.Config }

func (c certificateFiles) load(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	now := c.settings().HTTP
	pair, err := tls.LoadX509KeyPair(now.TLSCert, now.TLSKey)
	return &pair, err
}
