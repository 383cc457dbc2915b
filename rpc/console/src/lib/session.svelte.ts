// Who is logged in. The token is in a cookie that no script can read.
import { api, Failure, get, hooks, page, type Schemas, type Self } from './api';
import { take } from './route.svelte';
import { text } from './text';

type Offer = { open: boolean; dev: boolean; pages: boolean };

/** left is where the tab keeps the place in the page from which a login by an identity provider's page began. */
const left = 'coopr-place';

/** back returns what the browser came back with from an identity provider's page, and takes it out of the address. */
function back(): URLSearchParams | undefined {
  if (location.pathname !== '/console/callback') return undefined;
  const came = new URLSearchParams(location.search);
  const place = sessionStorage.getItem(left) ?? '';
  sessionStorage.removeItem(left);
  history.replaceState(null, '', place.startsWith('#') ? '/' + place : '/'); // never another page
  take();
  return came;
}

class Session {
  state = $state<'asking' | 'out' | 'in' | 'unknown'>('asking');
  self = $state<Self>();
  agent = $state<Schemas['AgentStatus']>();
  dev = $state(false);
  pages = $state(false);
  note = $state('');

  /** start finds out whether the cookie is good. */
  async start() {
    const came = back();
    this.note = '';
    try {
      const offer = await page<Offer>('GET', 'session');
      this.dev = offer.dev;
      this.pages = offer.pages;
      if (came && (await this.finish(came))) return;
      if (offer.open) await this.enter(); // also after a link to somebody else's login
      else this.state = 'out';
    } catch (e) {
      if (e instanceof Failure && e.status === 401) this.end();
      else {
        this.state = 'unknown';
        this.note = e instanceof Error ? e.message : '';
      }
    }
  }

  /**
   * finish ends a login on an identity provider's page, and returns whether somebody is logged in by it. The text of an error
   * is not shown: anybody can write it into a link.
   */
  private async finish(came: URLSearchParams): Promise<boolean> {
    const code = came.get('code');
    if (code) {
      try {
        await page('POST', 'finish', { state: came.get('state') ?? '', code });
        await this.enter();
        return true;
      } catch (e) {
        this.note = text.login.failed(e instanceof Error ? e.message : String(e));
      }
    } else {
      const error = came.get('error') ?? '';
      this.note = error === 'access_denied' ? text.login.denied : text.login.refused(/^[a-z_]{1,40}$/.test(error) ? error : '?');
    }
    return false;
  }

  async enter() {
    const self = await get(api.GET('/v1/self'));
    this.self = self;
    this.note = '';
    this.state = 'in';
    void this.describe();
    // A session lasts eight hours and is prolonged by use.
    if (self.session && self.expires && self.expires - Date.now() < 4 * 3600e3) {
      void api.POST('/v1/self/renew').catch(() => undefined);
    }
  }

  async describe() {
    try {
      this.agent = await get(api.GET('/v1/status'));
    } catch {
      this.agent = undefined; // not everybody may see it
    }
  }

  async byPassword(tenant: string, user: string, password: string, method: string) {
    await page('POST', 'login', { tenant, user, password, ...(method ? { method } : {}) });
    await this.enter();
  }

  async byToken(token: string) {
    await page('POST', 'token', undefined, { Authorization: `Bearer ${token}` });
    await this.enter();
  }

  /** byPages leaves this page for that of an identity provider. */
  async byPages(tenant: string, method: string) {
    const { url } = await page<{ url: string }>('POST', 'begin', { tenant, method });
    if (!/^https?:\/\//.test(url)) throw new Error(text.login.noPage);
    sessionStorage.setItem(left, location.hash);
    location.assign(url);
  }

  async byClick() {
    await page('POST', 'dev');
    await this.enter();
  }

  async logout() {
    await page('POST', 'logout');
    this.self = undefined;
    this.state = 'out';
    this.note = '';
  }

  /** end is called when an answer says that the token is not valid any more. */
  end() {
    if (this.state === 'out') return;
    this.self = undefined;
    this.state = 'out';
    this.note ||= text.login.ended;
  }
}

export const session = new Session();
hooks.ended = () => {
  if (session.state === 'in') session.end();
};
