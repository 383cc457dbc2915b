package host

func hostProcess() {}
