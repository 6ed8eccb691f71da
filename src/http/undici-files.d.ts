// undici declares its index alone.
declare module 'undici/lib/dispatcher/dispatcher.js' {
  export { Dispatcher as default } from 'undici';
}
declare module 'undici/lib/dispatcher/env-http-proxy-agent.js' {
  export { EnvHttpProxyAgent as default } from 'undici';
}
declare module 'undici/lib/dispatcher/client.js' {
  export { Client as default } from 'undici';
}
declare module 'undici/lib/dispatcher/pool.js' {
  export { Pool as default } from 'undici';
}
declare module 'undici/lib/core/connect.js' {
  export { buildConnector as default } from 'undici';
}
declare module 'undici/lib/core/symbols.js' {
  const symbols: { readonly kParser: unique symbol };
  export default symbols;
}
declare module 'undici/lib/api/api-connect.js' {
  export { connect as default } from 'undici';
}
declare module 'undici/lib/api/api-request.js' {
  import type { Dispatcher } from 'undici';
  export default function request(
    this: Pick<Dispatcher, 'dispatch'>,
    options: Dispatcher.RequestOptions,
  ): Promise<Dispatcher.ResponseData>;
}
declare module 'undici/lib/handler/wrap-handler.js' {
  import type { Dispatcher } from 'undici';
  /** Makes a handler of today's kind of one of either kind. */
  const WrapHandler: { wrap(handler: Dispatcher.DispatchHandler): Dispatcher.DispatchHandler };
  export default WrapHandler;
}
