package decode

import (
	"reflect"
	"strings"

	"github.com/coopr/coopr/engine/model"
)

// ChangeCluster decodes a request strictly.
func ChangeCluster(data []byte) (model.ChangeCluster, error) {
	var r model.ChangeCluster
	faults, _ := decodeRequest(data, &r, nil)
	model.CheckNames(&faults, "services", r.Services)
	return r, faults.Limited().Err()
}

// CreateCluster decodes a request strictly and checks it. The error, of type Faults, has
// all faults.
func CreateCluster(data []byte) (model.CreateCluster, error) {
	var r model.CreateCluster
	faults, read := decodeRequest(data, &r, modernCreate)
	if !read {
		return r, faults
	}
	shape := faults
	for _, f := range r.Check() {
		if !shape.Has(f.Path) {
			faults = append(faults, f)
		}
	}
	return r, faults.Limited().Err()
}

// ConfigureCluster decodes a request strictly and checks it. Values that the request
// does not have stay as they are.
func ConfigureCluster(data []byte) (model.ConfigureCluster, error) {
	var r model.ConfigureCluster
	faults, _ := decodeRequest(data, &r, nil)
	if len(faults) == 0 && r.Config == nil && r.Rollout == (model.Rollout{}) && r.ProviderFields == nil {
		faults.Add("config", "is missing: give the configuration that the cluster shall have")
	}
	model.CheckConfigMode(&faults, r.ConfigMode)
	return r, faults.Limited().Err()
}

// ServiceRequest decodes the body of a start, stop, restart, add or remove. An empty
// body means all services.
func ServiceRequest(data []byte) (model.ServiceRequest, error) {
	var r model.ServiceRequest
	faults, _ := decodeRequest(data, &r, nil)
	model.CheckNames(&faults, "services", r.Services)
	r.NodeChoice.Check(&faults)
	return r, faults.Limited().Err()
}

// DeleteCluster decodes the body of a delete, which may be empty.
func DeleteCluster(data []byte) (model.DeleteCluster, error) {
	var r model.DeleteCluster
	faults, _ := decodeRequest(data, &r, nil)
	return r, faults.Limited().Err()
}

// decodeRequest is Strict with a hook that converts older shapes. It reports whether
// there is a request to check: an empty body is one, broken JSON is not.
func decodeRequest(data []byte, into any, modernise func(*decoder, *node)) (model.Faults, bool) {
	if len(strings.TrimSpace(string(data))) == 0 {
		return nil, true
	}
	docs, faults := parse(data, false)
	if len(docs) == 0 {
		return faults, false
	}
	if len(docs) > 1 {
		faults = append(faults, &model.Fault{Line: docs[1].line, Message: "a second document begins here: give one"})
	}
	d := decoder{keepEmpty: true}
	if modernise != nil {
		modernise(&d, docs[0])
	}
	d.value(docs[0], reflect.ValueOf(into).Elem(), "")
	return append(faults, d.faults...), docs[0].kind == objectNode
}

func modernCreate(d *decoder, n *node) {
	if nodes := n.get("nodes"); nodes != nil {
		n.drop("nodes")
		if n.get("numMachines") != nil {
			d.fault(nodes, "nodes", "is another name of \"numMachines\", which is given too: keep one")
		} else {
			n.set("numMachines", nodes.line, nodes)
		}
	}
	if lease := n.get("initialLeaseDuration"); lease != nil && lease.text == "-1" {
		n.drop("initialLeaseDuration")
	}
}
