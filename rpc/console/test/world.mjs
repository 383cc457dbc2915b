// What the stories need: an agent in dev mode with the demo's shop, a browser, and the checks that every page must pass.
import { execFile, spawn } from 'node:child_process';
import { accessSync, mkdirSync, mkdtempSync, openSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { delimiter, join, resolve } from 'node:path';
import { promisify } from 'node:util';
import axe from 'axe-core';
import { chromium } from 'playwright-core';

const root = resolve(import.meta.dirname, '../../..');
const bin = resolve(process.env.COOPR_TEST_BIN ?? join(root, 'bin'));
export const shop = join(root, 'examples/shop');
const pictures = join(import.meta.dirname, 'pictures');

/** eventually waits until a condition holds. */
export async function eventually(what, ok, limit = 60_000) {
  const end = Date.now() + limit;
  for (;;) {
    const got = await ok();
    if (got) return got;
    if (Date.now() > end) throw new Error(`never: ${what}`);
    await new Promise((r) => setTimeout(r, 50));
  }
}

function program(...names) {
  for (const name of names)
    for (const dir of process.env.PATH.split(delimiter))
      try {
        accessSync(join(dir, name));
        return join(dir, name);
      } catch {
        // in another folder
      }
  throw new Error(`none of ${names.join(', ')} is installed: make ci-deps`);
}

function freeAddress() {
  return new Promise((done, fail) => {
    const s = createServer();
    s.on('error', fail);
    s.listen(0, '127.0.0.1', () => {
      const { port } = s.address();
      s.close(() => done(`127.0.0.1:${port}`));
    });
  });
}

export class Agent {
  /** start starts an agent in dev mode, with the demo's shop unless it is to be empty. */
  static async start({ empty = false } = {}) {
    const a = new Agent();
    a.dir = mkdtempSync(join(tmpdir(), 'coopr-console-'));
    a.env = { PATH: bin + delimiter + process.env.PATH, HOME: a.dir, TMPDIR: a.dir };
    a.addresses = [await freeAddress(), await freeAddress(), await freeAddress()];
    await a.run();
    if (!empty) await a.coopr('import', shop);
    return a;
  }

  /** found starts the only agent of a mesh with certificates, which the mesh's own CAs have signed: browserRoot is the one for browsers. */
  static async found() {
    const a = new Agent();
    a.dir = mkdtempSync(join(tmpdir(), 'coopr-console-'));
    a.env = { PATH: bin + delimiter + process.env.PATH, HOME: a.dir, TMPDIR: a.dir };
    const [http, peer, gossip] = [await freeAddress(), await freeAddress(), await freeAddress()];
    const mesh = join(a.dir, 'mesh');
    const data = join(a.dir, 'data');
    mkdirSync(data, { mode: 0o700 });
    await promisify(execFile)(join(bin, 'coopr-agent'), ['init', '--out', mesh, '--peer', peer], { env: a.env });
    a.token = readFileSync(join(mesh, 'root-token'), 'utf8').trim();
    renameSync(join(mesh, 'identity'), join(data, 'identity'));
    const log = openSync(join(a.dir, 'agent.log'), 'a');
    a.process = spawn(
      join(bin, 'coopr-agent'),
      ['--data-dir', data, '--http-addr', http, '--peer-addr', peer, '--gossip-addr', gossip],
      { cwd: a.dir, env: a.env, stdio: ['ignore', log, log] },
    );
    a.url = `https://${http}`;
    a.env.COOPR_CACERT = join(mesh, 'ca.pem');
    await eventually('the mesh has a leader', () => a.coopr('members').catch(() => undefined));
    a.browserRoot = (await promisify(execFile)(join(bin, 'coopr-agent'), ['ca', '--browser', '--data-dir', data], { env: a.env })).stdout;
    return a;
  }

  /** waiting starts an agent that carries out no tasks: it takes many clusters quickly, and none of their nodes is made. */
  static async waiting() {
    const a = new Agent();
    a.dir = mkdtempSync(join(tmpdir(), 'coopr-console-'));
    a.env = { PATH: bin + delimiter + process.env.PATH, HOME: a.dir, TMPDIR: a.dir };
    a.addresses = [await freeAddress(), await freeAddress(), await freeAddress()];
    a.idle = true;
    await a.run();
    await a.coopr('import', join(root, 'examples/shop'));
    return a;
  }

  /** trusting starts an agent on whose page the people of an identity provider log in: ann, and eve, who has no role. */
  static async trusting() {
    const a = new Agent();
    a.dir = mkdtempSync(join(tmpdir(), 'coopr-console-'));
    a.env = { PATH: bin + delimiter + process.env.PATH, HOME: a.dir, TMPDIR: a.dir };
    a.addresses = [await freeAddress(), await freeAddress(), await freeAddress()];
    a.idle = true;
    const address = await freeAddress();
    const people = join(a.dir, 'people.json');
    const settings = join(a.dir, 'providers.yaml');
    const program = join(a.dir, 'idp');
    const knows = { ann: { password: 'words of ann', groups: ['devs'] }, eve: { password: 'words of eve' } };
    writeFileSync(people, JSON.stringify(knows), { mode: 0o600 });
    a.issuer = `http://${address}/`;
    const provider = { name: 'sso', issuer: a.issuer, client_id: 'native', rules: [{ group: 'devs', role: 'user' }] };
    writeFileSync(settings, JSON.stringify({ identity_providers: [provider] }), { mode: 0o600 });
    await promisify(execFile)('go', ['build', '-buildvcs=false', '-ldflags=-w', '-o', program, '.'], { cwd: join(root, 'tools/idp') });
    const log = openSync(join(a.dir, 'idp.log'), 'a');
    a.provider = spawn(program, [address, people], { cwd: a.dir, env: a.env, stdio: ['ignore', log, log] });
    await eventually('the provider is up', () => fetch(`${a.issuer}.well-known/openid-configuration`).then((r) => r.ok, () => false));
    await a.run('--config', settings);
    return a;
  }

  async run(...settings) {
    const log = openSync(join(this.dir, 'agent.log'), 'a');
    const [http, peer, gossip] = this.addresses;
    const data = join(this.dir, 'data');
    rmSync(join(data, 'dev.json'), { force: true });
    this.process = spawn(
      join(bin, 'coopr-agent'),
      ['--dev', '--data-dir', data, '--http-addr', http, '--peer-addr', peer, '--gossip-addr', gossip, '--plugin-dir', bin,
        '--providers-local-root', join(this.dir, 'nodes'), ...(this.idle ? ['--worker-slots', '0'] : []), ...settings],
      { cwd: this.dir, env: this.env, stdio: ['ignore', log, log] },
    );
    const found = await eventually('the agent is up', () => {
      if (this.process.exitCode !== null) throw new Error(`the agent has ended:\n${this.log()}`);
      try {
        return JSON.parse(readFileSync(join(data, 'dev.json'), 'utf8'));
      } catch {
        return undefined;
      }
    });
    this.url = found.addr;
    this.token = found.token;
    await eventually('the agent is ready', () => fetch(`${this.url}/v1/readyz`).then((r) => r.ok, () => false));
  }

  log() {
    return readFileSync(join(this.dir, 'agent.log'), 'utf8').slice(-4000);
  }

  async coopr(...args) {
    const { stdout } = await promisify(execFile)(join(bin, 'coopr'), args, {
      env: { ...this.env, COOPR_ADDR: this.url, COOPR_TOKEN: this.token, NO_COLOR: '1' },
    });
    return stdout;
  }

  async api(method, path, body) {
    const r = await fetch(this.url + path, {
      method,
      headers: { Authorization: `Bearer ${this.token}`, 'Content-Type': 'application/json' },
      body: body && JSON.stringify(body),
    });
    if (!r.ok) throw new Error(`${method} ${path}: ${r.status} ${await r.text()}`);
    return r.json();
  }

  async kill(signal = 'SIGKILL') {
    if (this.process.exitCode !== null || this.process.signalCode !== null) return;
    const ended = new Promise((done) => this.process.once('exit', done));
    this.process.kill(signal);
    await ended;
  }

  /** empty deletes all clusters, whose processes would outlive the agent. */
  async empty() {
    const names = async () => JSON.parse(await this.coopr('cluster', 'list', '-o', 'json')).filter((c) => c.status !== 'terminated').map((c) => c.name);
    for (const name of await names()) await this.coopr('cluster', 'delete', name, '--yes');
    await eventually('all clusters are gone', async () => (await names()).length === 0);
  }

  async close() {
    try {
      if (!this.idle) await this.empty();
    } finally {
      await this.kill('SIGTERM');
      this.provider?.kill();
      rmSync(this.dir, { recursive: true, force: true });
    }
  }
}

export class Browser {
  static async start(agent) {
    const b = new Browser();
    b.agent = agent;
    mkdirSync(pictures, { recursive: true });
    b.browser = await chromium.launch({
      executablePath: program('chromium', 'google-chrome'),
      args: ['--no-sandbox', '--disable-quic', '--disable-background-networking', '--disable-component-update', '--no-first-run'],
    });
    b.context = await b.browser.newContext({ viewport: { width: 1280, height: 800 }, reducedMotion: 'reduce', ignoreHTTPSErrors: true });
    b.page = await b.context.newPage();
    b.faults = [];
    b.expected = [];
    b.page.on('console', (m) => {
      if (m.type() === 'error' || m.type() === 'warning') b.faults.push(`${m.text()}\n  ${m.location().url}`);
    });
    b.page.on('pageerror', (e) => b.faults.push(String(e)));
    b.page.on('dialog', (d) => {
      b.faults.push(`a dialog: ${d.message()}`);
      void d.dismiss();
    });
    b.page.on('request', (r) => {
      if (!r.url().startsWith(agent.url)) b.faults.push(`a request of ${r.url()}`);
    });
    return b;
  }

  /** heading waits for the heading of a page. */
  async heading(name) {
    await this.page.getByRole('heading', { level: 1, name, exact: true }).waitFor();
  }

  /** home logs in at a dev agent with one click. */
  async home() {
    await this.page.goto(this.agent.url);
    await this.page.getByRole('button', { name: 'Continue as the dev agent' }).click();
    await this.heading('Home');
  }

  /** good checks a page in both colours and at the size of a phone, and takes its picture. */
  async good(name) {
    const faults = [];
    const { page } = this;
    for (const colorScheme of ['light', 'dark']) {
      await page.emulateMedia({ colorScheme });
      await page.screenshot({ path: join(pictures, `${name}-${colorScheme}.png`) });
      // By evaluate, as the page's policy permits no script that is added to it. The second colours change only what rules about colours see.
      if (!(await page.evaluate(() => 'axe' in window))) await page.evaluate(axe.source);
      const rules = colorScheme === 'light' ? {} : { runOnly: ['color-contrast', 'link-in-text-block'] };
      const found = await page.evaluate((rules) => window.axe.run(document, { resultTypes: ['violations'], ...rules }), rules);
      for (const v of found.violations)
        for (const n of v.nodes) faults.push(`${name}, ${colorScheme}: ${v.id}: ${n.html.slice(0, 200)} (${n.failureSummary})`);
    }
    await page.emulateMedia({ colorScheme: 'light' });
    await page.setViewportSize({ width: 360, height: 740 });
    const wide = await page.evaluate(() => document.scrollingElement.scrollWidth);
    if (wide > 360) faults.push(`${name}: is ${wide} pixels wide on a phone`);
    await page.screenshot({ path: join(pictures, `${name}-phone.png`) });
    await page.setViewportSize({ width: 1280, height: 800 });
    if (faults.length) throw new Error(faults.join('\n'));
  }

  /** as returns a page of a new user of a role, in a session of its own. Its context is to be closed. */
  async as(name, role) {
    const password = 'four random words here';
    await this.agent.api('POST', '/v1/users', { name, role, password });
    const page = await (await this.browser.newContext()).newPage();
    await page.goto(this.agent.url);
    await page.getByLabel('Tenant').fill('default');
    await page.getByLabel('Name', { exact: true }).fill(name);
    await page.getByLabel('Password').fill(password);
    await page.keyboard.press('Enter');
    await page.getByText(`${name} (default)`).waitFor();
    return page;
  }

  /** complaints returns what the browser complained of, without what a story expects. */
  complaints(...expected) {
    return this.faults.splice(0).filter((f) => !expected.some((e) => f.split('\n')[0].includes(e)));
  }

  async close() {
    await this.browser.close();
  }
}
