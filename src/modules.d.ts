// Types of modules that have none: files of undici, which declares its index alone, and the page that the build makes.
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

/** Made by the build (`scripts/build/gallery-page.mjs`) from the files in `page/`. */
declare module 'virtual:gallery-page' {
  export const script: string;
  export const style: string;
}
