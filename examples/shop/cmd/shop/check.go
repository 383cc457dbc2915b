package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

// check fetches one URL until it answers 200 or the wait is over.
func (p program) check(ctx context.Context, args []string) error {
	var wait time.Duration
	s := p.newSettings("check")
	s.DurationVar(&wait, "wait", 0, "how long to retry")
	if err := s.parse(args); err != nil {
		return err
	}
	if s.NArg() != 1 {
		return fmt.Errorf("%w: want one URL, got %d: shop check --wait 10s http://127.0.0.1:8080/health", errUsage, s.NArg())
	}
	client := &http.Client{Transport: &http.Transport{}, Timeout: 2 * time.Second}
	defer client.CloseIdleConnections()
	end := time.Now().Add(wait)
	for {
		body, err := fetchText(ctx, client, s.Arg(0))
		if err == nil {
			_, err = p.stdout.Write(body)
			return err
		}
		if time.Now().After(end) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func fetchText(ctx context.Context, client *http.Client, url string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "text/plain, application/json")
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err = errors.Join(err, resp.Body.Close()); err != nil {
		return nil, fmt.Errorf("GET %s: %w", url, err)
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("GET %s: %s: %s", url, resp.Status, body)
	}
	return body, nil
}
