package model

import (
	"fmt"
	"net/netip"
	"slices"
)

// MaxSources bounds the source ranges of a token.
const MaxSources = 32

// ParseSource parses a source range of a token: an IP network such as 10.0.0.0/8 or 2001:db8::/32, or an address, which is a network of
// one address. An IPv4 address within IPv6 is one of IPv4. The error completes a sentence about the text.
func ParseSource(text string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(text)
	if addr, alone := netip.ParseAddr(text); alone == nil && addr.Zone() == "" {
		p, err = netip.PrefixFrom(addr, addr.BitLen()), nil
	}
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("must be a network such as 10.0.0.0/8 or 2001:db8::/32, or an address, but is %q", text)
	}
	if p.Addr().Is4In6() {
		if p.Bits() < 96 {
			return netip.Prefix{}, fmt.Errorf("is %q: write networks of IPv4 as 10.0.0.0/8", text)
		}
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	if m := p.Masked(); m != p {
		return netip.Prefix{}, fmt.Errorf("is %q, an address within a network: write %s or %s", text, m, p.Addr())
	}
	return p, nil
}

// ParseSources returns source ranges of a new token in their usual spelling, without repetitions. within are the ranges of the token
// with which it is made: no other range is allowed, and they are the result if texts is empty.
func ParseSources(faults *Faults, texts, within []string) []string {
	if len(texts) > MaxSources {
		faults.Add("sources", fmt.Sprintf("are %d: a token has at most %d", len(texts), MaxSources))
		return nil
	}
	if len(texts) == 0 {
		return within
	}
	var out []string
	for i, text := range texts {
		p, err := ParseSource(text)
		switch {
		case err != nil:
			faults.Add(fmt.Sprintf("sources[%d]", i), err.Error())
		case len(within) > 0 && !slices.ContainsFunc(within, func(s string) bool { return contains(s, p) }):
			faults.Add(fmt.Sprintf("sources[%d]", i), fmt.Sprintf("is %s, which is not within the source ranges of the token that asks", p))
		case !slices.Contains(out, p.String()):
			out = append(out, p.String())
		}
	}
	return out
}

// contains reports whether a range has all addresses of a network.
func contains(source string, p netip.Prefix) bool {
	s, err := netip.ParsePrefix(source)
	return err == nil && s.Bits() <= p.Bits() && s.Contains(p.Addr())
}

// AdmittedFrom reports whether a token with source ranges can be used from an address. Without ranges it can be used from anywhere, with
// some not from an address that is not known, the zero Addr.
func AdmittedFrom(from netip.Addr, sources []string) bool {
	if len(sources) == 0 {
		return true
	}
	from = from.Unmap().WithZone("")
	return from.IsValid() && slices.ContainsFunc(sources, func(s string) bool {
		return contains(s, netip.PrefixFrom(from, from.BitLen()))
	})
}
