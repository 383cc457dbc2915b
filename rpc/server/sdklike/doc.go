// Package sdklike serves requests on the paths of the DC/OS SDK as the SDK does.
package sdklike
