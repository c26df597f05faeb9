// Pages opened from a folder may start no web worker, and the search is one: this plays it in a hidden frame.
(() => {
  if (location.protocol !== "file:") return;

  const prelude = `
    self.importScripts = (...urls) => urls.reduce((before, url) => before.then(() => new Promise((done, failed) => {
      const script = document.createElement("script");
      script.src = url;
      script.onload = done;
      script.onerror = failed;
      document.body.appendChild(script);
    })), Promise.resolve());
    self.postMessage = data => parent.dispatchEvent(new MessageEvent("message", {data, source: self}));`;

  class IFrameWorker extends EventTarget {
    constructor(url) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.appendChild(this.frame);
      window.addEventListener("message", event => {
        if (event.source !== this.frame.contentWindow) return;
        event.stopImmediatePropagation();
        const message = new MessageEvent("message", {data: event.data});
        this.dispatchEvent(message);
        if (this.onmessage) this.onmessage(message);
      });
      const page = this.frame.contentDocument;
      page.open();
      page.write(`<html><body><script>${prelude}<\/script><script src="${new URL(url, location)}"><\/script></body></html>`);
      page.close();
      this.ready = new Promise(done => { this.frame.onload = done; });
    }

    postMessage(data) {
      this.ready.then(() => this.frame.contentWindow.dispatchEvent(new MessageEvent("message", {data})));
    }

    terminate() {
      this.frame.remove();
    }
  }

  window.IFrameWorker = IFrameWorker;
  window.Worker = IFrameWorker;
})();
