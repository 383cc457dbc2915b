package access

import "net/netip"

var (
	noAddress netip.Addr
	inside    = netip.MustParseAddr("10.1.2.3")
	outside   = netip.MustParseAddr("192.0.2.1")
)
