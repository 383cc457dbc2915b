// Shop is the three-tier system that the example deploys, as one small
// program: a store that keeps keys in a file, web servers that render a page
// from the store, and a balancer in front of them.
//
//	shop store    --listen 127.0.0.1:8081 --data shop.db
//	shop web      --listen 127.0.0.1:8082 --store http://127.0.0.1:8081
//	shop balancer --listen 127.0.0.1:8080 --backends http://127.0.0.1:8082
//	shop seed     --data shop.db
//	shop check    --wait 10s http://127.0.0.1:8080/health
//
// Every setting is a flag, an environment variable (SHOP_ and the flag's name)
// or a line of the file that --config names, in this order of precedence.
package main
