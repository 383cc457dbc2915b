package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net/http/httptest"
	"time"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/client"
	"github.com/coopr/coopr/rpc/server"
	"github.com/coopr/coopr/rpc/server/apitest"
)

// exampleMesh starts an agent for an example.
func exampleMesh() (address string, stop func()) {
	store := apitest.NewStore()
	agent := apitest.NewAgent(store, "a")
	h, err := server.New(server.Config{Services: agent.Services()})
	if err != nil {
		log.Fatal(err)
	}
	s := httptest.NewServer(h)
	return s.URL, func() {
		s.Close()
		store.Close()
	}
}

// A definition is written under its name. Each write creates a new version.
func Example() {
	address, stop := exampleMesh()
	defer stop()
	c, err := client.New(client.Config{Addresses: []string{address}, Token: apitest.Admin})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()

	ctx := context.Background()
	body := json.RawMessage(`{"name": "nginx", "description": "A web server"}`)
	if _, _, err := c.PutDefinition(ctx, model.KindService, "nginx", body); err != nil {
		log.Fatal(err)
	}
	services, _, err := c.Definitions(ctx, model.KindService, client.Read{})
	if err != nil {
		log.Fatal(err)
	}
	for _, s := range services {
		var head struct {
			Name    string
			Version int
		}
		if err := json.Unmarshal(s, &head); err != nil {
			log.Fatal(err)
		}
		fmt.Println(head.Name, head.Version)
	}
	// Output: nginx 1
}

// With dryRun a request shows what it would do.
func ExampleClient_CreateCluster() {
	address, stop := exampleMesh()
	defer stop()
	c, err := client.New(client.Config{Addresses: []string{address}, Token: apitest.Admin})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()

	ctx := context.Background()
	_, _, err = c.Import(ctx, map[string][]json.RawMessage{
		"providers":        {json.RawMessage(`{"name": "cloud", "providertype": "cloud"}`)},
		"hardwaretypes":    {json.RawMessage(`{"name": "small", "providermap": {"cloud": {"flavor": "s"}}}`)},
		"imagetypes":       {json.RawMessage(`{"name": "debian", "providermap": {"cloud": {"image": "d"}}}`)},
		"services":         {json.RawMessage(`{"name": "nginx"}`)},
		"clustertemplates": {json.RawMessage(`{"name": "shop", "defaults": {"services": ["nginx"], "provider": "cloud"}}`)},
	}, false)
	if err != nil {
		log.Fatal(err)
	}
	started, _, err := c.CreateCluster(ctx, model.CreateCluster{Name: "my-shop", ClusterTemplate: "shop", NumMachines: 2}, true)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(started.Preview.Nodes), "nodes would be created")
	fmt.Println("started:", started.Operation != nil)
	// Output:
	// 2 nodes would be created
	// started: false
}

// Errors have codes. An Error also has the status, and every fault of the input.
func ExampleError() {
	address, stop := exampleMesh()
	defer stop()
	c, err := client.New(client.Config{Addresses: []string{address}, Token: apitest.Admin})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()

	_, _, err = c.Cluster(context.Background(), "no-such-cluster", client.Read{})
	var problem *client.Error
	if errors.As(err, &problem) {
		fmt.Println(problem.Status, problem.Type == api.ProblemNotFound, errors.Is(err, client.ErrNotFound))
	}
	// Output: 404 true true
}

// Consecutive reads can wait for changes: the second call returns when the state is newer
// than the one that the first call returned, or after ten milliseconds.
func ExampleRead() {
	address, stop := exampleMesh()
	defer stop()
	c, err := client.New(client.Config{Addresses: []string{address}, Token: apitest.User})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()

	ctx := context.Background()
	clusters, meta, err := c.Clusters(ctx, client.ClusterFilter{}, client.Read{Consistency: api.Consistent})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(clusters), "clusters")
	_, later, err := c.Clusters(ctx, client.ClusterFilter{}, client.Read{After: meta.Index, Wait: 10 * time.Millisecond})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("changed:", later.Index > meta.Index)
	// Output:
	// 0 clusters
	// changed: false
}
