package content

import (
	"strings"

	"github.com/crannog/crannog/internal/packages"
)

// popular are very popular packages. The lists also have well-known packages that are near one of
// these, so that they are no findings.
var popular = map[packages.Ecosystem][]string{
	packages.NPM: strings.Fields(`
		@babel/core @babel/runtime @nestjs/core @vue/compiler-core angular apollo-server async axios
		babel-core bcrypt bcryptjs bluebird body-parser bootstrap chalk cheerio classnames color
		colord colors commander cookie-parser cross-env cross-spawn dayjs debug discord.js dotenv
		electron enquirer esbuild eslint ethers event-stream express fastify formik graphql handlebars
		helmet http-proxy immer inquirer jquery jsonwebtoken lodash lodash-es lodash.merge mocha
		moment mongodb mongoose morgan multer mysql mysql2 nestjs next-auth node-fetch nodemailer
		nodemon passport pinia postcss preact prettier prisma prompt prompts puppeteer react react-dom
		react-router redis redux request rimraf rollup rxjs-compat semver sequelize sharp shelljs
		sinon socket.io styled-components supertest svelte tailwindcss through through2 tslib tslint
		typeorm typescript underscore undici validator vitest web3-utils webpack winston yargs
		yargs-parser zustand`),
	packages.PyPI: strings.Fields(`
		aiohttp alembic ansible anthropic attrs awscli beautifulsoup4 black boto boto3 botocore celery
		certifi charset-normalizer click colorama cryptography django djangorestframework djongo
		docker fastapi flake8 flask gunicorn httplib2 httpx importlib-metadata ipython isort jinja
		jinja2 jsonschema jupyter keras langchain lightgbm markupsafe matplotlib mypy-extensions
		networkx notebook numba numpy openai opencv-python openpyxl packaging pandas paramiko pillow
		plotly poetry protobuf psutil psycopg psycopg2 psycopg2-binary pyarrow pycryptodome
		pycryptodomex pydantic pygments pyjwt pylint pymongo pymysql pyopenssl pytest python-dateutil
		python-dotenv pyyaml redis requests scapy scikit-learn scipy scrapy seaborn selenium
		sentry-sdk setuptools simplejson sqlalchemy starlette tensorflow tokenizers torch torchaudio
		torchvision tornado transformers twine typer typing-extensions urllib3 uvicorn virtualenv
		websockets werkzeug wheel xgboost`),
	packages.Crates: strings.Fields(`
		actix-web anyhow async-trait axum-core base64 bincode bindgen bitflags bytes cargo chrono
		clap-derive crossbeam csv-core diesel dirs-sys env_logger futures hashbrown hyper hyperx indexmap
		itertools lazy_static libloading memchr nalgebra ndarray num-traits num_cpus once_cell openssl
		parking_lot proc-macro2 prost quote rand_core rayon regex reqwest rocket rustls rusqlite
		rust_decimal semver serde serde_derive serde_json serde_yaml smallvec sqlx-core structopt
		tempfile thiserror tokio tokio-util toml-edit tonic tower-http tracing tracing-subscriber
		unicode-width wasm-bindgen windows winapi`),
	packages.Go: strings.Fields(`
		github.com/aws/aws-sdk-go github.com/boltdb/bolt github.com/davecgh/go-spew
		github.com/fsnotify/fsnotify github.com/gin-gonic/gin github.com/go-chi/chi
		github.com/go-redis/redis github.com/go-sql-driver/mysql github.com/gofiber/fiber
		github.com/golang-jwt/jwt github.com/golang/protobuf github.com/google/go-cmp
		github.com/google/uuid github.com/gorilla/mux github.com/gorilla/websocket
		github.com/hashicorp/consul github.com/jackc/pgx github.com/jmoiron/sqlx
		github.com/json-iterator/go github.com/labstack/echo github.com/lib/pq
		github.com/mattn/go-sqlite3 github.com/pkg/errors github.com/prometheus/client_golang
		github.com/redis/go-redis github.com/rs/zerolog github.com/shopspring/decimal
		github.com/sirupsen/logrus github.com/spf13/cobra github.com/spf13/viper
		github.com/stretchr/testify github.com/urfave/cli go.etcd.io/bbolt go.mongodb.org/mongo-driver
		go.uber.org/zap google.golang.org/grpc google.golang.org/protobuf gopkg.in/yaml.v3 gorm.io/gorm
		k8s.io/api k8s.io/client-go`),
	packages.Maven: strings.Fields(`
		ch.qos.logback:logback-classic com.fasterxml.jackson.core:jackson-databind
		com.google.code.gson:gson com.google.guava:guava com.h2database:h2 com.squareup.okhttp3:okhttp
		com.zaxxer:HikariCP commons-io:commons-io commons-lang:commons-lang io.netty:netty-all
		javax.servlet:servlet-api junit:junit mysql:mysql-connector-java
		org.apache.commons:commons-lang3 org.apache.httpcomponents:httpclient
		org.apache.logging.log4j:log4j-core org.hibernate:hibernate-core org.junit.jupiter:junit-jupiter
		org.mockito:mockito-core org.postgresql:postgresql org.projectlombok:lombok
		org.slf4j:slf4j-api org.springframework.boot:spring-boot org.springframework:spring-core`),
}
