// Package ec2 is a small EC2 for tests, written from Amazon's documentation of the Query API
// (2016-11-15): RunInstances with client tokens and tags, DescribeInstances with filters and pages,
// TerminateInstances. It shows how the documentation was understood, and proves nothing about the
// real EC2.
package ec2

import (
	"encoding/base64"
	"encoding/xml"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Server is one account.
type Server struct {
	// AccessKey is the only accepted key. Signatures are not verified.
	AccessKey string
	// Image is the only image.
	Image string
	// Boot starts a machine with this user data and returns its address; Halt stops it.
	Boot func(userData string) string
	Halt func(address string)

	mu        sync.Mutex
	last      int
	instances []*instance
}

type tag struct {
	Key   string `xml:"key"`
	Value string `xml:"value"`
}

type state struct {
	Code int    `xml:"code"`
	Name string `xml:"name"`
}

// instance is an instance in the API's form.
type instance struct {
	ID     string    `xml:"instanceId"`
	Image  string    `xml:"imageId"`
	State  state     `xml:"instanceState"`
	Type   string    `xml:"instanceType"`
	Launch time.Time `xml:"launchTime"`
	Zone   string    `xml:"placement>availabilityZone"`
	Subnet string    `xml:"subnetId,omitempty"`
	IP     string    `xml:"privateIpAddress,omitempty"`
	Tags   []tag     `xml:"tagSet>item"`
	Token  string    `xml:"clientToken"`

	address   string
	describes int
}

var states = map[string]int{"pending": 0, "running": 16, "shutting-down": 32, "terminated": 48, "stopped": 80}

func (i *instance) be(name string) { i.State = state{states[name], name} }

const xmlns = "http://ec2.amazonaws.com/doc/2016-11-15/"

func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "text/xml;charset=UTF-8")
	w.WriteHeader(status)
	_, _ = fmt.Fprint(w, xml.Header)
	_ = xml.NewEncoder(w).Encode(v)
}

// Refusal returns an error in the API's form.
func Refusal(code, message string) string {
	return fmt.Sprintf("<Response><Errors><Error><Code>%s</Code><Message>%s</Message></Error></Errors><RequestID>r-0</RequestID></Response>",
		code, message)
}

func refuse(w http.ResponseWriter, status int, code, message string) {
	w.Header().Set("Content-Type", "text/xml;charset=UTF-8")
	w.WriteHeader(status)
	_, _ = fmt.Fprint(w, Refusal(code, message))
}

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if err := r.ParseForm(); err != nil {
		refuse(w, 400, "MalformedQueryString", err.Error())
		return
	}
	if !strings.Contains(r.Header.Get("Authorization"), "Credential="+s.AccessKey+"/") {
		refuse(w, 401, "AuthFailure", "AWS was not able to validate the provided access credentials")
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch f := r.Form; f.Get("Action") {
	case "RunInstances":
		s.run(w, f)
	case "DescribeInstances":
		s.describe(w, f)
	case "TerminateInstances":
		s.terminate(w, f)
	default:
		refuse(w, 400, "InvalidAction", "The action "+f.Get("Action")+" is not valid for this web service.")
	}
}

func (s *Server) run(w http.ResponseWriter, f url.Values) {
	type response struct {
		XMLName     xml.Name    `xml:"RunInstancesResponse"`
		NS          string      `xml:"xmlns,attr"`
		Request     string      `xml:"requestId"`
		Reservation string      `xml:"reservationId"`
		Instances   []*instance `xml:"instancesSet>item"`
	}
	token := f.Get("ClientToken")
	for _, i := range s.instances {
		if token != "" && i.Token == token {
			answer(w, 200, response{NS: xmlns, Reservation: "r-" + i.ID, Instances: []*instance{i}})
			return
		}
	}
	switch {
	case f.Get("MinCount") != "1" || f.Get("MaxCount") != "1" || f.Get("InstanceType") == "":
		refuse(w, 400, "MissingParameter", "The request must contain the parameters MinCount, MaxCount and InstanceType")
		return
	case f.Get("ImageId") != s.Image:
		refuse(w, 400, "InvalidAMIID.NotFound", fmt.Sprintf("The image id '[%s]' does not exist", f.Get("ImageId")))
		return
	}
	data, err := base64.StdEncoding.DecodeString(f.Get("UserData"))
	if err != nil {
		refuse(w, 400, "InvalidUserData.Malformed", "Invalid BASE64 encoding of user data")
		return
	}
	s.last++
	i := &instance{ID: fmt.Sprintf("i-%017x", s.last), Image: s.Image, Type: f.Get("InstanceType"),
		Launch: time.Now().UTC().Truncate(time.Millisecond), Zone: f.Get("Placement.AvailabilityZone"), Subnet: f.Get("SubnetId"), Token: token}
	for n := 1; ; n++ {
		spec := fmt.Sprintf("TagSpecification.%d.", n)
		if f.Get(spec+"ResourceType") == "" {
			break
		}
		for t := 1; f.Get(spec+"ResourceType") == "instance"; t++ {
			p := fmt.Sprintf("%sTag.%d.", spec, t)
			if f.Get(p+"Key") == "" {
				break
			}
			i.Tags = append(i.Tags, tag{f.Get(p + "Key"), f.Get(p + "Value")})
		}
	}
	i.be("pending")
	i.address = s.Boot(string(data))
	s.instances = append(s.instances, i)
	answer(w, 200, response{NS: xmlns, Request: "q-1", Reservation: "r-" + i.ID, Instances: []*instance{i}})
}

// page is how many reservations one answer has.
const page = 2

func (s *Server) describe(w http.ResponseWriter, f url.Values) {
	type reservation struct {
		ID        string      `xml:"reservationId"`
		Instances []*instance `xml:"instancesSet>item"`
	}
	var found []reservation
	for _, i := range s.instances {
		if !fits(i, f) {
			continue
		}
		found = append(found, reservation{"r-" + i.ID, []*instance{i}})
	}
	from, _ := strconv.Atoi(f.Get("NextToken"))
	from = min(from, len(found))
	to := min(from+page, len(found))
	next := ""
	if to < len(found) {
		next = strconv.Itoa(to)
	}
	answer(w, 200, struct {
		XMLName      xml.Name      `xml:"DescribeInstancesResponse"`
		NS           string        `xml:"xmlns,attr"`
		Request      string        `xml:"requestId"`
		Reservations []reservation `xml:"reservationSet>item"`
		Next         string        `xml:"nextToken,omitempty"`
	}{NS: xmlns, Request: "q-2", Reservations: found[from:to], Next: next})
	for _, r := range found[from:to] {
		// It is running from the third description on.
		i := r.Instances[0]
		if i.describes++; i.describes == 2 && i.State.Name == "pending" {
			i.be("running")
			i.IP = i.address
		}
	}
}

// fits compares an instance with the request's filters.
func fits(i *instance, f url.Values) bool {
	for n := 1; ; n++ {
		p := fmt.Sprintf("Filter.%d.", n)
		name := f.Get(p + "Name")
		if name == "" {
			return true
		}
		value := i.State.Name
		if key, isTag := strings.CutPrefix(name, "tag:"); isTag {
			value = ""
			for _, t := range i.Tags {
				if t.Key == key {
					value = t.Value
				}
			}
		}
		ok := false
		for v := 1; f.Get(fmt.Sprintf("%sValue.%d", p, v)) != ""; v++ {
			match, _ := path.Match(f.Get(fmt.Sprintf("%sValue.%d", p, v)), value)
			ok = ok || match
		}
		if !ok {
			return false
		}
	}
}

func (s *Server) terminate(w http.ResponseWriter, f url.Values) {
	id := f.Get("InstanceId.1")
	for _, i := range s.instances {
		if i.ID != id {
			continue
		}
		was := i.State
		if i.address != "" {
			s.Halt(i.address)
			i.address = ""
		}
		i.be("terminated")
		type change struct {
			ID       string `xml:"instanceId"`
			Current  state  `xml:"currentState"`
			Previous state  `xml:"previousState"`
		}
		answer(w, 200, struct {
			XMLName   xml.Name `xml:"TerminateInstancesResponse"`
			NS        string   `xml:"xmlns,attr"`
			Request   string   `xml:"requestId"`
			Instances []change `xml:"instancesSet>item"`
		}{NS: xmlns, Request: "q-3", Instances: []change{{id, i.State, was}}})
		return
	}
	refuse(w, 400, "InvalidInstanceID.NotFound", fmt.Sprintf("The instance ID '%s' does not exist", id))
}
